"""What every question of a stack stands on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl.memory import Budget
from dmkl.runtime import Runtime
from dmkl.tiling import Grid


class Tiled:
    """Tiles of s kernels over n samples, in shards, and who runs passes over them."""

    grid: Grid
    dtype: np.dtype[Any]
    memory: Budget
    runtime: Runtime
    passes: int
    _shards: list[Any]

    @property
    def n(self) -> int:
        return self.grid.n

    @property
    def s(self) -> int:
        raise NotImplementedError

    def _whole_array(self, dtype: np.dtype[Any]) -> NDArray[Any] | None:
        raise NotImplementedError
