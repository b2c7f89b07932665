"""Array types, named once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Samples = NDArray[np.int64]  # numbers of samples, ascending unless said otherwise
Mask = NDArray[np.bool_]
Tile = NDArray[Any]  # kernel values, float32 or float64
ValueType = np.dtype[Any]  # of kernel values
