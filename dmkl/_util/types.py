"""Array types, named once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Samples = NDArray[np.int64]  # numbers of samples, ascending unless said otherwise
Mask = NDArray[np.bool_]
