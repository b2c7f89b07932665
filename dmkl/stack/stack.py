"""The kernel stack: the only thing solvers see of kernels.

It answers questions, each in one pass over the tiles: `apply` and `rows`, those of `cutting.py` and those of
`expanding.py`. Where the tiles are (memory, disk, Dask workers) is a matter of which shards it was given and which
runtime runs the passes.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmkl._util.machine import Budget, Scratch
from dmkl._util.tiling import Grid
from dmkl._util.types import Float64, Mask, Samples
from dmkl.errors import SolverError
from dmkl.events import Observer, ignore
from dmkl.runtime import Local, Runtime
from dmkl.runtime.base import itself
from dmkl.stack import passes
from dmkl.stack.checks import checked_array, checked_groups, refuse_indefinite, require_definite, require_symmetric
from dmkl.stack.cuts import cut
from dmkl.stack.cutting import Cutting
from dmkl.stack.expanding import Expanding
from dmkl.stack.loops import rows_of
from dmkl.stack.shards import ArrayShard, HeldShard, choose, digest
from dmkl.store import Mended

if TYPE_CHECKING:
    from dmkl.stack.parts import PartStack

LARGEST_TILE = 1024


@dataclass(frozen=True)
class Applied:
    """What one scoring pass gives: scores (n, m) and, if asked for, quadratic forms (m, s)."""

    scores: Float64
    forms: Float64 | None


class KernelStack(Cutting, Expanding):
    """s kernels over n samples. `apply`, `rows` and what cuts blocks are for symmetric ones, the others for any.

    `passes` counts how often tiles were read from end to end, for whatever question.
    """

    def __init__(
        self,
        shards: Sequence[Any],
        grid: Grid,
        names: Sequence[str],
        *,
        groups: NDArray[np.int64],
        dtype: Any,
        runtime: Runtime,
        memory: Budget,
        near: Sequence[Any] | None = None,
        indefinite: Sequence[str] = (),
        given: Sequence[str] = (),
        backend: str = "memory",
        identity: Callable[[], str] | None = None,
        source: Path | None = None,
        mended: Mended | None = None,
        symmetric: bool = False,
    ) -> None:
        self._shards = list(shards)
        # on a cluster: the shards that one task may take all of; these very ones where each worker can hold them
        self._near = self._shards if near is shards else near
        self.grid = grid
        self.names = tuple(names)
        self.groups = groups
        self.dtype = np.dtype(dtype)
        self.runtime = runtime
        self.memory = memory
        self.indefinite = tuple(indefinite)
        self.given = tuple(given)  # kernels that nothing but a look at them tells to be semidefinite
        self.backend = backend
        self._find_identity = identity
        self._identity = ""  # until a checkpoint asks for it
        self.source = source
        self._scratch = Scratch()
        self.passes = 0
        self.observer: Observer = ignore  # told of every shard that a pass has been over
        self._mended = mended
        self._symmetric = symmetric  # seen to be: nobody needs to look again
        self._definite = False  # until somebody asked
        self._row_norms: Float64 | None = None

    @classmethod
    def from_array(
        cls,
        K: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        workers: int = 0,
        memory: int | None = None,
        largest_tile: int = LARGEST_TILE,
    ) -> KernelStack:
        """A stack over an array (s, n, n), kept as it is: no normalisation, no change of float64 to float32."""
        array, symmetric = checked_array(K)
        s, n = array.shape[:2]
        grid = Grid.cut(n, largest_tile, full=True)  # an array has every tile
        names = names or [f"K{a}" for a in range(s)]
        return cls(
            [ArrayShard(array, grid, i) for i in range(grid.blocks)],
            grid,
            names,
            given=names,
            groups=checked_groups(groups, s),
            dtype=array.dtype,
            runtime=Local(workers),
            memory=Budget(memory) if memory else Budget.default(),
            identity=functools.partial(digest_of_array, array),
            symmetric=symmetric,
        )

    @classmethod
    def open(cls, path: str | Path, *, workers: int = 0, memory: int | None = None, client: Any = None) -> KernelStack:
        """A stack over a finished store: in memory if it fits, else streamed; with a Dask client, on its workers."""
        from dmkl.stack.backends import open_stack

        return open_stack(Path(path), workers=workers, memory=memory, client=client)

    @property
    def identity(self) -> str:
        """A text that stacks share if and only if they have the same kernels: the id of a store, a digest of an array's
        values, a digest of what a part or a choice was made of. Found once, when first asked for."""
        if not self._identity:
            self._identity = self._find_identity() if self._find_identity else self._digest_of_tiles()
        return self._identity

    def _digest_of_tiles(self) -> str:
        digests = list(self.runtime.map(digest, ((shard,) for shard in self._shards)))
        return digest_of_text("tiles", *digests)

    @property
    def held_bytes(self) -> int:
        """Bytes of tiles that this process holds."""
        return sum(shard.nbytes for shard in self._shards if isinstance(shard, ArrayShard | HeldShard))

    @property
    def in_one_array(self) -> bool:
        """Whether a block of all samples and kernels costs nothing."""
        return self._whole_array(self.dtype) is not None

    def news(self) -> list[str]:
        """What a person would want to know of the tiles, once each."""
        return self._mended.news() if self._mended else []

    @property
    def s(self) -> int:
        return len(self.names)

    def choose(self, kernels: Sequence[int]) -> KernelStack:
        """A stack of some of the kernels, over the same tiles."""
        names = [self.names[a] for a in kernels]
        shards = [self.runtime.hold(choose, shard, tuple(kernels)) for shard in self._shards]
        near = shards if self._near is self._shards else self._near and [choose(shard, kernels) for shard in self._near]
        return KernelStack(
            shards,
            self.grid,
            names,
            near=near,
            groups=self.groups[list(kernels)],
            dtype=self.dtype,
            runtime=self.runtime,
            memory=self.memory,
            indefinite=[name for name in names if name in self.indefinite],
            given=[] if self._definite else [name for name in names if name in self.given],
            backend=self.backend,
            identity=functools.partial(derived_identity, self, "kernels", tuple(kernels)),
            symmetric=self._symmetric,
        )

    def restrict(self, samples: ArrayLike) -> PartStack:
        """A stack of some of the samples (ascending numbers), over the same tiles."""
        from dmkl.stack.parts import PartStack

        return PartStack(self, samples)

    def apply(self, coef: Float64, weights: Float64, *, forms: bool | Mask = True) -> Applied:
        """Scores `sum_a weights[k, a] K_a coef[:, k]` (n, m) and forms `coef[:, k]' K_a coef[:, k]` (m, s).

        `weights` is (m, s), or (s,) for weights that all classes share. `forms` may be a mask (m, s) of those that are
        wanted; the others come back as 0. A kernel that a class neither weighs nor wants is not read for it.
        """
        coef = np.ascontiguousarray(coef, dtype=np.float64)
        weights = np.asarray(weights, dtype=np.float64)
        self._check_shapes(coef, weights)
        shared = self.runtime.hold(itself, coef)
        asked = np.broadcast_to(forms, (coef.shape[1], self.s)) if np.any(forms) else None
        tasks = ((shard, shared, weights, asked) for shard in self._shards)
        scores = np.zeros(coef.shape)
        total = None if asked is None else np.zeros(asked.shape)
        for i, part in enumerate(self._each_shard(passes.apply_shard, tasks)):
            scores[self.grid.span(i).start :] += part.scores
            if total is not None:
                total += part.forms
        self.passes += 1
        return Applied(scores, total)

    def _whole_array(self, dtype: np.dtype[Any]) -> NDArray[Any] | None:
        """The array this stack was made from, read-only, if it is one: nothing to cut, nothing to copy."""
        shard = self._shards[0]
        if not isinstance(shard, ArrayShard) or shard.array.dtype != dtype or not shard.array.flags.c_contiguous:
            return None
        view = shard.array.view()
        view.flags.writeable = False
        return view

    def rows(self, samples: Samples, *, kernels: Sequence[int] | None = None) -> NDArray[Any]:
        """Whole kernel rows `K[kernels][:, samples, :]` of ascending samples; one pass."""
        kernels = list(range(self.s)) if kernels is None else list(kernels)
        self.memory.require(len(kernels) * len(samples) * self.n * self.dtype.itemsize, "the kernel rows")
        result = np.empty((len(kernels), len(samples), self.n), self.dtype)
        tasks = ((shard, samples, kernels, self.dtype) for shard in self._shards)
        for pieces in self._each_shard(passes.rows_shard, tasks):
            for positions, columns, values in pieces:
                result[:, positions, columns] = values
        self.passes += 1
        return result

    def require_semidefinite(self, who: str) -> None:
        """Refuse kernels that a convex formulation cannot use; see `checks` for which are looked at, once a stack."""
        if self.indefinite:
            refuse_indefinite(who, self.indefinite[0])
        if self._definite:
            return
        for shard in self._shards:
            if isinstance(shard, ArrayShard) and not self._symmetric:
                require_symmetric(shard)
        if self.given:
            numbers = [self.names.index(name) for name in self.given]
            whole = self._whole_array(self.dtype)
            require_definite(who, self.given, self.n, lambda W: self._part(whole, W, numbers))
        self._definite = True

    def _part(self, whole: NDArray[Any] | None, W: Samples, kernels: list[int]) -> NDArray[Any]:
        if whole is None:
            return self.block([W], kernels=[kernels])[0]
        part = np.empty((len(kernels), len(W), len(W)))
        for layer, a in zip(part, kernels, strict=True):
            cut(rows_of(whole[a]), W, W, layer, 0, 0)
        return part

    def _check_shapes(self, coef: Float64, weights: Float64) -> None:
        classes = coef.shape[1] if coef.ndim == 2 else 0
        if coef.ndim != 2 or coef.shape[0] != self.n or weights.shape not in ((self.s,), (classes, self.s)):
            raise SolverError(
                f"coefficients {coef.shape} and weights {weights.shape} do not fit a stack of "
                f"{self.s} kernels over {self.n} samples",
                f"use coefficients (n, m) and weights (m, s) or (s,), n = {self.n}, s = {self.s}",
            )


def digest_of_array(array: NDArray[Any]) -> str:
    """A digest of an array's type, shape and values."""
    found = hashlib.blake2b(f"array {array.dtype.str} {array.shape}".encode(), digest_size=16)
    for kernel in array:
        found.update(np.ascontiguousarray(kernel).data)
    return found.hexdigest()


def derived_identity(stack: KernelStack, how: str, numbers: Sequence[int]) -> str:
    """The identity of some kernels or samples of a stack."""
    return digest_of_text(stack.identity, how, list(numbers))


def digest_of_text(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()
