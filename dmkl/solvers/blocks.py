"""The memory of compact blocks, and a cache of blocks that are solved again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dmkl._util.machine import in_batches
from dmkl._util.types import FloatArray, Mask, Samples
from dmkl.errors import ResourceError
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import State
from dmkl.solvers.working_sets import whole


@dataclass(frozen=True)
class BlockMemoryOptions:
    """How much memory compact blocks may take."""

    share: float = 0.4  # of the memory limit, less the process and held tiles
    process_bytes: int = 250_000_000  # of Python and its libraries
    growth_room: int = 4  # how many times its first size a block of random samples is expected to reach
    in_flight: float = 2.0  # memory while a matrix is put together from the tasks' results, as a multiple of its size


OPTIONS = BlockMemoryOptions()


def block_room(problem: Problem) -> int:
    """Bytes that compact blocks may take.

    They are reckoned from the limit, not from the memory that is free at the moment: batches, and so the last bits of
    every sum, are the same in a run that was killed and continued as in one that was not.
    """
    memory = problem.stack.memory
    planned = memory.limit - OPTIONS.process_bytes - problem.stack.held_bytes
    return int(OPTIONS.share * (planned if planned > 0 else memory.left))


def own_layers(problem: Problem, kernels: int) -> int:
    """How many matrices a block of so many kernels takes memory for: none where the block is the stack's own array."""
    stack = problem.stack
    return 0 if whole(problem.n) and kernels == stack.s and stack.in_one_array else kernels


def require_room(k: int, samples: int, needed: int, room: int) -> None:
    """Refuse a block that is larger than the room (ResourceError)."""
    if needed > room:
        raise ResourceError(
            f"class {k} needs a block of {samples} samples ({needed / 1e6:,.0f} MB), more than the "
            f"{room / 1e6:,.0f} MB there are for it",
            "raise --memory",
        )


class Blocks:
    """A cache of blocks of all kernels over the working sets of a state; the least recently used ones leave first."""

    def __init__(self, problem: Problem, state: State) -> None:
        self._problem, self._room = problem, state.room
        self._sets = [np.flatnonzero(column) for column in state.working.T]
        self._kept: dict[int, FloatArray] = {}  # in the order of last use
        self._sizes: dict[int, int] = {}  # of the kept ones, in bytes
        self._used = 0

    def follow(self, working: Mask) -> None:
        """Use these working sets; blocks of sets that changed are dropped."""
        for k, members in enumerate(working.T):
            if not np.array_equal(W := np.flatnonzero(members), self._sets[k]):
                self._sets[k] = W
                if self._kept.pop(k, None) is not None:
                    self._used -= self._sizes.pop(k)

    def samples(self, k: int) -> Samples:
        """The working set of class k."""
        return self._sets[k]

    def batches(self, classes: Sequence[int]) -> Iterator[tuple[list[int], list[FloatArray]]]:
        """The classes, kept ones first, as many at a time as fit, with their blocks."""
        kept_first = [k for k in classes if k in self._kept] + [k for k in classes if k not in self._kept]
        for k in kept_first:
            require_room(k, len(self._sets[k]), self._bytes(k), self._room)
        for batch in in_batches(kept_first, lambda some: sum(self._bytes(k) for k in some), self._room):
            self._gather(batch)
            yield batch, [self._kept[k] for k in batch]

    def _gather(self, batch: list[int]) -> None:
        """Make sure that the blocks of these classes are kept, and drop others that no longer fit."""
        for k in batch:
            if k in self._kept:
                self._kept[k] = self._kept.pop(k)  # now the last to leave
        missing = [k for k in batch if k not in self._kept]
        if not missing:
            return
        self._sizes.update((k, self._bytes(k)) for k in missing)
        self._used += sum(self._sizes[k] for k in missing)
        for k in [k for k in self._kept if k not in set(batch)]:
            if self._used <= self._room:
                break
            del self._kept[k]
            self._used -= self._sizes.pop(k)
        found = self._problem.stack.block([self._sets[k] for k in missing])
        self._kept.update(zip(missing, found, strict=True))

    def _bytes(self, k: int) -> int:
        stack = self._problem.stack
        return int(own_layers(self._problem, stack.s) * stack.dtype.itemsize * len(self._sets[k]) ** 2)
