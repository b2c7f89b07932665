"""What every question of a stack stands on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.machine import Budget
from dmkl._util.tiling import Grid
from dmkl.events import Observer, Progress
from dmkl.runtime import Runtime


class Tiled:
    """Tiles of s kernels over n samples, in shards, and who runs passes over them."""

    grid: Grid
    dtype: np.dtype[Any]
    memory: Budget
    runtime: Runtime
    passes: int
    observer: Observer
    _shards: list[Any]

    @property
    def n(self) -> int:
        return self.grid.n

    @property
    def s(self) -> int:
        raise NotImplementedError  # the stack's own

    def _whole_array(self, dtype: np.dtype[Any]) -> NDArray[Any] | None:
        raise NotImplementedError  # the stack's own

    def _each_shard(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """The answers of one task a shard, in order: most of a pass."""
        for done, answer in enumerate(self.runtime.map(function, tasks), 1):
            yield answer
            self.observer(Progress("pass", done, len(self._shards)))
