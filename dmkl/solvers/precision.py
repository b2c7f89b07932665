"""When weighted sums of float32 kernels may themselves be float32."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmkl._util.types import FloatType


@dataclass(frozen=True)
class PrecisionOptions:
    """Rounding a sum once more has to stay far below the tolerance."""

    float32_tol: float = 1e-4  # tighter tolerances keep sums in float64
    float64_samples: int = 2000  # so do sums over at most so many samples, which also saves compiling a second variant


PRECISION = PrecisionOptions()


def sum_dtype(dtype: FloatType, samples: int, tol: float, options: PrecisionOptions | None = None) -> FloatType:
    """The type that weighted sums of kernels of this type are kept in, over so many samples, for this tolerance."""
    options = options or PRECISION
    double = tol < options.float32_tol or samples <= options.float64_samples
    return np.dtype(np.float64) if double else np.dtype(dtype)
