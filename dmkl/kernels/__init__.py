"""Kernel functions, the bank of fitted kernels, and the tiles they fill."""

from dmkl.kernels.bank import Bank, BankKernel, Pair
from dmkl.kernels.functions import KERNELS, Kernel
from dmkl.kernels.plan import plan_bank

__all__ = ["KERNELS", "Bank", "BankKernel", "Kernel", "Pair", "plan_bank"]
