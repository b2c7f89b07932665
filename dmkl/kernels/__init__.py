"""Kernel functions, the bank of fitted kernels, and the tiles they fill."""

from dmkl.kernels.bank import Bank, BankKernel, Pair, Sums, base_tile, row_means, tile_sums
from dmkl.kernels.functions import KERNELS, Kernel
from dmkl.kernels.plan import cheaper_computed, plan_bank
from dmkl.kernels.repair import repair

__all__ = [
    "KERNELS",
    "Bank",
    "BankKernel",
    "Kernel",
    "Pair",
    "Sums",
    "base_tile",
    "cheaper_computed",
    "plan_bank",
    "repair",
    "row_means",
    "tile_sums",
]
