"""Types that many modules need, named once."""

from __future__ import annotations

import os
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Samples = NDArray[np.int64]  # numbers of samples, ascending unless said otherwise
Mask = NDArray[np.bool_]
Array: TypeAlias = NDArray[Any]  # of any element type
FloatArray: TypeAlias = NDArray[np.floating[Any]]  # float32 or float64
FloatType: TypeAlias = np.dtype[np.floating[Any]]

StrPath: TypeAlias = str | os.PathLike[str]  # what `pathlib.Path` takes
