"""Checks of arrays that become a stack, and of kernels for the formulations that are convex in them.

Kernels whose formula makes them semidefinite are not checked. Kernels that the user supplies, as arrays or as
precomputed views, are checked twice: for symmetry, and over a random subset of the samples for a clearly negative
eigenvalue. The eigenvalues over a subset lie between those over all samples, so a kernel that is refused is indefinite
for sure; a kernel that is indefinite in a few directions only may pass. The subset is so small that the check takes
less time than one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dmkl._util.in_memory import in_memory
from dmkl._util.types import Float64, FloatArray, Samples
from dmkl.errors import DataError, SolverError
from dmkl.stack.compiled import one_sided


@dataclass(frozen=True)
class CheckOptions:
    """How kernels are checked numerically.

    Attributes
    ----------
    largest_subset : samples over which eigenvalues are checked, at most
    flops : of the eigenvalue check of all kernels together: 30 ms for 442 kernels, less than the symmetry check
    rounding : the largest entry of (K - K') z that a symmetric K may have, relative to its diagonal
    negative : an eigenvalue below this share of -||K||_F is no rounding, not even of values kept in half precision
    """

    largest_subset: int = 300
    flops: float = 5e7
    rounding: float = 1e-9
    negative: float = 1e-3


CHECKS = CheckOptions()


def checked_array(K: ArrayLike) -> tuple[FloatArray, bool]:
    """The array after a check that all its values are finite, and whether its kernels are symmetric up to rounding.

    One reading checks both: (K - K') z of random z is zero for a symmetric K, almost never for another, and not finite
    where K has a value that is not. Kernels that are not symmetric up to rounding are compared entry by entry when a
    formulation needs symmetric ones.
    """
    array = np.asarray(in_memory(K, "the stack of kernels"))
    if array.ndim != 3 or array.shape[1] != array.shape[2] or 0 in array.shape:
        raise DataError(f"a stack is an array (s, n, n) of square kernels, not {array.shape}")
    if array.dtype not in (np.float32, np.float64):
        if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool) or np.iscomplexobj(array):
            raise DataError(f"kernels should be real numbers, not {array.dtype}")
        array = array.astype(np.float64)
    n, symmetric = array.shape[1], True
    probe: Float64 = np.random.default_rng(0).standard_normal((n,))
    difference = np.empty(n)
    for a, kernel in enumerate(array):
        seen = one_sided(kernel, probe, difference)
        symmetric = symmetric and seen <= CHECKS.rounding * np.abs(kernel.diagonal()).max()
        if not np.isfinite(seen) and not np.isfinite(kernel).all():
            i, j = (int(p) for p in np.argwhere(~np.isfinite(kernel))[0])
            raise DataError(f"kernel {a} has NaN or infinity at ({i}, {j})")
    return array, bool(symmetric)


def checked_groups(groups: ArrayLike | None, s: int) -> Samples:
    """Group numbers 0, 1, ... from any labels (s,); one group for all kernels if there are none."""
    if groups is None:
        return np.zeros(s, dtype=np.int64)
    labels = np.asarray(groups)
    if labels.shape != (s,):
        raise DataError(f"groups should name the group of each of {s} kernels, not have shape {labels.shape}")
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


MIKL_TAKES_IT = 'leave it out, or use formulation.name = "mikl", which takes any kernel'


def refuse_indefinite(formulation: str, name: str) -> None:
    """Refuse a kernel that its formula shows to be indefinite."""
    raise SolverError(f"{formulation} needs positive semidefinite kernels and '{name}' is not one", MIKL_TAKES_IT)


def require_definite(formulation: str, names: Sequence[str], n: int, block: Callable[[Samples], FloatArray]) -> None:
    """Refuse kernels with a clearly negative eigenvalue; `block` gives (names, |W|, |W|) of them over samples W."""
    size = int(min(n, CHECKS.largest_subset, (3 * CHECKS.flops / max(len(names), 1)) ** (1 / 3)))
    W = np.sort(np.random.default_rng(0).permutation(n)[:size])
    part = block(W).astype(np.float64, copy=False)  # a copy already
    shift = CHECKS.negative * np.maximum(np.sqrt(np.einsum("aij,aij->a", part, part)), 1e-300)
    part[:, np.arange(size), np.arange(size)] += shift[:, None]
    try:
        np.linalg.cholesky(part)  # exists if and only if no eigenvalue is below -shift
    except np.linalg.LinAlgError:
        for name, matrix, added in zip(names, part, shift, strict=True):
            values = np.linalg.eigvalsh(matrix) - added
            if values[0] < -added:
                raise SolverError(
                    f"{formulation} needs positive semidefinite kernels and '{name}' is not one: over {size} samples "
                    f"its eigenvalues go from {values[0]:.2g} to {values[-1]:.2g}",
                    f'{MIKL_TAKES_IT}, or repair it: dmkl.repair(K, "clip")',
                ) from None


def checked_samples(samples: ArrayLike, n: int) -> Samples:
    """Numbers of samples, ascending and below n, at least one."""
    chosen = np.asarray(samples)
    if chosen.dtype.kind not in "iu" or chosen.ndim != 1 or not len(chosen):
        raise DataError("samples should be given by their numbers, at least one", "np.flatnonzero makes some of a mask")
    if chosen[0] < 0 or chosen[-1] >= n or (np.diff(chosen) <= 0).any():
        raise DataError(f"the numbers of samples should ascend, from 0 on and below {n}", "np.unique sorts them")
    return chosen.astype(np.int64)
