"""The questions about some samples only: blocks of them, and weighted sums (`gather.py` has what tasks do)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.machine import Scratch
from dmkl._util.types import Float64, Samples
from dmkl.events import Progress
from dmkl.runtime import Runtime
from dmkl.stack.gather import Gather, answer_chunk, assemble_matrix, chunks, gather_into, gather_shard, place
from dmkl.stack.tiled import Tiled

CHUNK_ROOM = 0.3  # of a worker's memory that the blocks it cuts at once may take


class Cutting(Tiled):
    """What a stack cuts out of its tiles."""

    _near: Sequence[Any] | None
    _scratch: Scratch

    def block(
        self,
        sets: Sequence[Samples],
        *,
        kernels: Sequence[Sequence[int]] | None = None,
        weights: Float64 | None = None,
        dtype: Any = None,
    ) -> list[NDArray[Any]]:
        """For each ascending set W of samples, `K[kernels][:, W, W]`, or (|W|, |W|) of the weighted sum; one pass.

        `kernels` holds the kernels of each set, all of them unless given. Blocks have the dtype of the stack unless
        told otherwise. A weighted sum of float32 kernels in float32 is rounded once more, which certificates below
        about 1e-5 notice.
        """
        return self._blocks(self._gather(sets, kernels, weights, dtype), None)

    def _blocks(self, wanted: Gather, scratch: Scratch | None) -> list[NDArray[Any]]:
        sets = wanted.sets
        if wanted.weights is None and all(len(W) == self.n for W in sets) and self._complete(wanted):
            whole = self._whole_array(wanted.dtype)
            if whole is not None:
                self.passes += 1
                return [whole for _ in sets]
        what = f"a block of {max(map(len, sets))} samples" if len(sets) == 1 else "the blocks"
        self.memory.require(sum(wanted.sizes()) - (scratch.used if scratch else 0), what)
        blocks = wanted.room(scratch)
        if self.runtime.remote:
            tasks = ((shard, wanted) for shard in self._shards)
            for i, pieces in enumerate(self._each_shard(gather_shard, tasks)):
                place(blocks, sets, self.grid.span(i), pieces)
        else:
            for _ in self._each_shard(gather_into, ((shard, wanted, blocks) for shard in self._shards)):
                pass
        self.passes += 1
        return wanted.finished(blocks)

    def answers(
        self,
        function: Callable[..., Any],
        questions: Sequence[tuple[Any, ...]],
        sets: Sequence[Samples],
        *,
        runtime: Runtime,
        **cut: Any,
    ) -> list[Any]:
        """`function(block, *question)` for the block of each set, `cut` as `block` is told to; one pass.

        Where workers can read the whole stack, they cut the blocks themselves: no block travels.
        """
        wanted = self._gather(sets, **cut)
        if self._near is None:
            blocks = self._blocks(wanted, self._scratch)
            tasks = ((block, *question) for block, question in zip(blocks, questions, strict=True))
            result = []
            for answer in runtime.map(function, tasks):
                result.append(answer)
                self.observer(Progress("solving", len(result), len(sets)))
            return result
        wanted = replace(wanted, sets=[self._in_near(W) for W in sets])
        found = chunks(wanted.sizes(), runtime.workers, CHUNK_ROOM * runtime.memory / runtime.workers)
        parts = ((self._near, wanted.some(chunk), function, [questions[p] for p in chunk]) for chunk in found)
        answered: dict[int, Any] = {}
        for chunk, answers in zip(found, runtime.map(answer_chunk, parts), strict=True):
            answered.update(zip(chunk, answers, strict=True))
            self.observer(Progress("solving", len(answered), len(sets)))
        self.passes += 1
        return [answered[position] for position in range(len(sets))]

    def _in_near(self, samples: Samples) -> Samples:
        """Samples as the shards of `_near` number them."""
        return samples

    def _gather(
        self,
        sets: Sequence[Samples],
        kernels: Sequence[Sequence[int]] | None = None,
        weights: Float64 | None = None,
        dtype: Any = None,
    ) -> Gather:
        chosen = [range(self.s)] * len(sets) if kernels is None else [list(some) for some in kernels]
        return Gather(sets, chosen, weights, np.dtype(dtype or self.dtype))

    def _complete(self, wanted: Gather) -> bool:
        return all(list(chosen) == list(range(self.s)) for chosen in wanted.kernels)

    def combine(self, weights: Float64, *, dtype: Any = None) -> NDArray[Any]:
        """The whole matrix `sum_a weights[a] K_a` (n, n); one pass."""
        return self.block([np.arange(self.n)], weights=np.asarray(weights, dtype=np.float64), dtype=dtype)[0]

    def combine_near(self, weights: Float64, *, dtype: Any = None) -> Any:
        """`combine`, held where tasks run: the matrix itself in this process, a future made by workers on a cluster."""
        if not self.runtime.remote:
            return self.combine(weights, dtype=dtype)
        wanted = self._gather([np.arange(self.n)], weights=weights, dtype=dtype)
        pieces = [self.runtime.hold(gather_shard, shard, wanted) for shard in self._shards]
        spans = [self.grid.span(i) for i in range(self.grid.blocks)]
        self.passes += 1
        return self.runtime.hold(assemble_matrix, self.n, spans, pieces)
