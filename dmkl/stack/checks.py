"""What an array must be to be a stack, and what kernels must be for the formulations that are convex in them.

Kernels that a formula makes semidefinite are not looked at. Those that were handed over, as arrays or as precomputed
views, are: that they are symmetric, and that their part over a random subset of the samples has no clearly negative
eigenvalue. The eigenvalues of a part lie between those of the whole, so what is refused is indefinite for sure; what is
indefinite in a few directions only may pass. The subset is chosen so that the check stays below what one pass costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmkl.errors import DataError, SolverError
from dmkl.runtime.base import one_blas_thread
from dmkl.stack.cuts import asymmetry, one_sided
from dmkl.stack.shards import ArrayShard

LARGEST_SUBSET = 300  # samples
CHECK_FLOPS = 5e7  # of all kernels together: 30 ms for 442 of them, less than looking for symmetry takes
ROUNDING = 1e-9  # of the diagonal: what (K - K') z may be
NEGATIVE = 1e-3  # an eigenvalue below -1e-3 ||K||_F is no rounding, not even of values kept in half precision


def checked_array(K: ArrayLike) -> tuple[NDArray[Any], bool]:
    """The array, finite, and whether its kernels are seen to be symmetric.

    One reading tells both: (K - K') z of random z is zero for a symmetric K, as good as never for another, and no
    number where K is none. Kernels that are symmetric up to more than rounding are looked at entry by entry when
    somebody needs them to be.
    """
    array = np.asarray(K)
    if array.ndim != 3 or array.shape[1] != array.shape[2] or 0 in array.shape:
        raise DataError(f"a stack is an array (s, n, n) of square kernels, not {array.shape}")
    if array.dtype not in (np.float32, np.float64):
        if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool) or np.iscomplexobj(array):
            raise DataError(f"kernels should be real numbers, not {array.dtype}")
        array = array.astype(np.float64)
    n, symmetric = array.shape[1], True
    probe: NDArray[np.float64] = np.random.default_rng(0).standard_normal((n,))
    difference = np.empty(n)
    for a, kernel in enumerate(array):
        seen = one_sided(kernel, probe, difference)
        symmetric = symmetric and seen <= ROUNDING * np.abs(kernel.diagonal()).max()
        if not np.isfinite(seen) and not np.isfinite(kernel).all():
            i, j = (int(p) for p in np.argwhere(~np.isfinite(kernel))[0])
            raise DataError(f"kernel {a} has NaN or infinity at ({i}, {j})")
    return array, bool(symmetric)


def checked_groups(groups: ArrayLike | None, s: int) -> NDArray[np.int64]:
    """Group numbers 0, 1, ...; one group for all kernels unless told otherwise."""
    if groups is None:
        return np.zeros(s, dtype=np.int64)
    labels = np.asarray(groups)
    if labels.shape != (s,):
        raise DataError(f"groups should name the group of each of {s} kernels, not have shape {labels.shape}")
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def require_symmetric(shard: ArrayShard) -> None:
    rows = shard.grid.span(shard.i)
    for a, kernel in enumerate(shard.array):
        largest, difference, i, j = asymmetry(kernel, rows.start, rows.stop)
        if difference > 1e-6 * max(largest, 1e-300):
            raise DataError(
                f"kernel {a} is not symmetric: entries ({i}, {j}) and ({j}, {i}) differ by {difference:.3g}",
                'symmetrise it, e.g. (K + K.T) / 2, or use formulation.name = "mikl", which takes any kernel',
            )


MIKL_TAKES_IT = 'leave it out, or use formulation.name = "mikl", which takes any kernel'


def refuse_indefinite(who: str, name: str) -> None:
    """For a kernel whose formula says so."""
    raise SolverError(f"{who} needs positive semidefinite kernels and '{name}' is not one", MIKL_TAKES_IT)


def require_definite(
    who: str, names: Sequence[str], n: int, block: Callable[[NDArray[np.int64]], NDArray[Any]]
) -> None:
    """Refuse kernels with a clearly negative eigenvalue; `block` gives (names, |W|, |W|) of them over samples W."""
    size = int(min(n, LARGEST_SUBSET, (3 * CHECK_FLOPS / max(len(names), 1)) ** (1 / 3)))
    W = np.sort(np.random.default_rng(0).permutation(n)[:size])
    part = block(W).astype(np.float64, copy=False)  # a copy already
    shift = NEGATIVE * np.maximum(np.sqrt(np.einsum("aij,aij->a", part, part)), 1e-300)
    part[:, np.arange(size), np.arange(size)] += shift[:, None]
    try:
        with one_blas_thread():  # several of them wait for each other on a busy machine, for seconds
            np.linalg.cholesky(part)  # exists if and only if no eigenvalue is below -shift
    except np.linalg.LinAlgError:
        for name, matrix, added in zip(names, part, shift, strict=True):
            values = np.linalg.eigvalsh(matrix) - added
            if values[0] < -added:
                raise SolverError(
                    f"{who} needs positive semidefinite kernels and '{name}' is not one: over {size} samples its "
                    f"eigenvalues go from {values[0]:.2g} to {values[-1]:.2g}",
                    f'{MIKL_TAKES_IT}, or repair it: dmkl.repair(K, "clip")',
                ) from None
