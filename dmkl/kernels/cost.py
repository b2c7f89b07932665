"""The cost of a kernel value: computed again at every pass, or written once and read at every pass.

A computed entry takes c in every one of P passes: its share of the base and of reading the samples (which all kernels
of one view and base divide among them), its elementwise function and its normalisers. A stored one takes c once, then W
to be written and R in every pass, of which opening its tile is a constant part. So computing is cheaper when

    P c <= c + W + P R,   that is   c <= (W + P R) / (P - 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dmkl.data import View
from dmkl.kernels.bank import Bank, BankKernel
from dmkl.kernels.distances import BASES, MATRIX


@dataclass(frozen=True)
class Costs:
    """Nanoseconds of one thread for one entry, measured by passes over n = 4,096 on 2 cores of AMD Zen 5, local disk.

    The figures of bases and of functions stand beside them (`Base`, `Kernel`). Reading is from the disk and not from
    the page cache (0.6): a store that is read at every pass does not fit in memory, and one that fits is held there.
    """

    passes: int = 6  # of a usual certified fit
    write: float = 1.9  # a float32 entry with its checksum
    read: float = 1.8  # the same
    open: float = 450_000.0  # for each chunk that is read through Zarr: a tile of one kernel, a block of samples
    sparse: float = 15.0  # a base of sparse features: 1.7 to 31 were measured, by how many columns two samples share
    normalise: Mapping[str, float] = field(
        default_factory=lambda: {"unit-diagonal": 3.6, "centre": 0.9, "unit-trace": 0.1, "unit-mean": 0.1}
    )


MEASURED = Costs()


def cheaper_computed(bank: Bank, views: Mapping[str, View], tile: int, fits: int = 1, costs: Costs = MEASURED) -> bool:
    """Whether computing the average entry of a bank in every pass is cheaper than storing it.

    Parameters
    ----------
    bank : the fitted kernels. A bank with distance or kernel matrices is stored: nothing would be computed, and its
        views are as large as tiles.
    views : the training views of the bank.
    tile : side of a tile.
    fits : number of fits that will read the kernels.
    costs : measured nanoseconds.
    """
    if any(kernel.function.base == MATRIX for kernel in bank.kernels):
        return False
    passes = costs.passes * fits
    stored = costs.write + passes * (costs.read + costs.open / tile**2)
    return computing_ns(bank, views, tile, costs) * (passes - 1) <= stored


def computing_ns(bank: Bank, views: Mapping[str, View], tile: int, costs: Costs = MEASURED) -> float:
    """Nanoseconds to compute one entry of an average kernel of the bank."""
    shared = {(kernel.view, kernel.function.base) for kernel in bank.kernels}
    bases = sum(_base_ns(views[view], base, tile, costs) for view, base in shared)
    return (bases + sum(_own_ns(kernel, costs) for kernel in bank.kernels)) / len(bank)


def _base_ns(view: View, base: str, tile: int, costs: Costs) -> float:
    columns = int(view.values.shape[1])
    samples = 2 * costs.open / tile**2 if columns > 1 else 0.0  # single columns are read many at a time
    if hasattr(view.values, "toarray"):
        return samples + costs.sparse
    return samples + BASES[base].entry_ns + BASES[base].column_ns * columns


def _own_ns(kernel: BankKernel, costs: Costs) -> float:
    return kernel.function.entry_ns + sum(costs.normalise[name] for name in kernel.normalise)
