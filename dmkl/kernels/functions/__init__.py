"""The kernel functions: one file each (families share one), one registration line each."""

from dmkl._util.registry import Registry
from dmkl.kernels.functions.base import Kernel, Scales
from dmkl.kernels.functions.chi2 import AdditiveChi2, Chi2
from dmkl.kernels.functions.given import Distance, Precomputed, Similarity
from dmkl.kernels.functions.intersection import Intersection
from dmkl.kernels.functions.kl import KullbackLeibler
from dmkl.kernels.functions.laplacian import Laplacian
from dmkl.kernels.functions.linear import Linear
from dmkl.kernels.functions.poly import Poly
from dmkl.kernels.functions.rbf import Rbf
from dmkl.kernels.functions.sigmoid import Sigmoid

KERNELS: Registry[type[Kernel]] = Registry("kernel")
KERNELS.register("linear", Linear)
KERNELS.register("poly", Poly)
KERNELS.register("rbf", Rbf)
KERNELS.register("laplacian", Laplacian)
KERNELS.register("chi2", Chi2)
KERNELS.register("additive_chi2", AdditiveChi2)
KERNELS.register("intersection", Intersection)
KERNELS.register("sigmoid", Sigmoid)
KERNELS.register("kl", KullbackLeibler)
KERNELS.register("distance", Distance)
KERNELS.register("precomputed", Precomputed)
KERNELS.register("similarity", Similarity)

__all__ = ["KERNELS", "Kernel", "Scales"]
