"""SharedMKL: one combination of kernels for all classes."""

from dmkl.solvers.shared.formulation import SharedMKL

__all__ = ["SharedMKL"]
