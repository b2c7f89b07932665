"""What a kernel value costs: computed again at every pass, or written once and read at every pass.

An entry that is computed takes c in every one of P passes: its share of the base and of reading the samples (which all
kernels of one view and base divide among them), its elementwise function and its normalisers. A stored one takes c
once, then W to be written and R in every pass, of which opening its tile is a constant part. So computing is cheaper
when

    P c <= c + W + P R,   that is   c <= (W + P R) / (P - 1).

Everything is in nanoseconds of one thread, measured by passes over n = 4,096 on 2 cores of AMD Zen 5 with a local
disk; the figures of bases and functions stand with them (`Base`, `Kernel`). Reading is from the disk and not from the
page cache (0.6): what is read at every pass is what does not fit in memory, and what fits is held, computed or not.
"""

from __future__ import annotations

from collections.abc import Mapping

from dmkl.data import View
from dmkl.kernels.bank import Bank, BankKernel
from dmkl.kernels.bases import BASES, GIVEN

PASSES = 6  # what a certified fit usually takes
WRITE = 1.9  # a float32 entry with its checksum
READ = 1.8  # the same
OPEN = 450_000.0  # for each chunk that is read through Zarr: a tile of one kernel, a block of samples
SPARSE = 15.0  # a base of sparse features: 1.7 to 31 were measured, by how many columns two samples share
NORMALISING = {"unit-diagonal": 3.6, "centre": 0.9, "unit-trace": 0.1, "unit-mean": 0.1}


def cheaper_computed(bank: Bank, views: Mapping[str, View], tile: int, fits: int = 1) -> bool:
    """Whether computing the bank's average entry at every pass of so many fits is cheaper than storing it, with tiles
    of this side.

    A bank with distance or kernel matrices is stored: there is nothing to compute, and its views are as large as tiles.
    """
    if any(kernel.function.base == GIVEN for kernel in bank.kernels):
        return False
    passes = PASSES * fits
    stored = WRITE + passes * (READ + OPEN / tile**2)
    return computing_ns(bank, views, tile) * (passes - 1) <= stored


def computing_ns(bank: Bank, views: Mapping[str, View], tile: int) -> float:
    """Nanoseconds for one entry of an average kernel of the bank."""
    shared = {(kernel.view, kernel.function.base) for kernel in bank.kernels}
    bases = sum(_base_ns(views[view], base, tile) for view, base in shared)
    return (bases + sum(map(_own_ns, bank.kernels))) / len(bank)


def _base_ns(view: View, base: str, tile: int) -> float:
    columns = int(view.values.shape[1])
    samples = 2 * OPEN / tile**2 if columns > 1 else 0.0  # single columns are read many at a time
    if hasattr(view.values, "toarray"):
        return samples + SPARSE
    return samples + BASES[base].entry_ns + BASES[base].column_ns * columns


def _own_ns(kernel: BankKernel) -> float:
    return kernel.function.entry_ns + sum(NORMALISING[name] for name in kernel.normalise)
