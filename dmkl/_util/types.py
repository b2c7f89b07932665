"""Types that many modules need, named once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Float64 = NDArray[np.float64]
Float32 = NDArray[np.float32]
Array = NDArray[Any]  # numbers of any type
Samples = NDArray[np.int64]  # numbers of samples, ascending unless said otherwise
Mask = NDArray[np.bool_]
FloatArray: TypeAlias = NDArray[np.floating[Any]]  # float32 or float64
FloatType: TypeAlias = np.dtype[np.floating[Any]]
Block: TypeAlias = "Array | csr_array"  # samples, one a row: dense, or sparse features
Table = dict[str, Any]  # plain values by name, as JSON and TOML have them
SINGLE: FloatType = np.dtype(np.float32)
DOUBLE: FloatType = np.dtype(np.float64)
StrPath: TypeAlias = str | os.PathLike[str]  # what `pathlib.Path` takes
