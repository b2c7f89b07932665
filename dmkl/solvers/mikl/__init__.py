"""MIKL: kernels of any kind, coefficients for every sample and kernel."""

from dmkl.solvers.mikl.formulation import MIKL

__all__ = ["MIKL"]
