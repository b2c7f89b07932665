"""The table of kernel functions: a kernel is one file and one line here."""

from dmkl._util.registry import Registry
from dmkl.kernels.functions.base import Kernel, Scales

KERNELS: Registry[type[Kernel]] = Registry("kernel")
KERNELS.register("linear", "dmkl.kernels.functions.standard:Linear")
KERNELS.register("poly", "dmkl.kernels.functions.standard:Poly")
KERNELS.register("rbf", "dmkl.kernels.functions.standard:Rbf")
KERNELS.register("laplacian", "dmkl.kernels.functions.standard:Laplacian")
KERNELS.register("chi2", "dmkl.kernels.functions.standard:Chi2")
KERNELS.register("additive_chi2", "dmkl.kernels.functions.standard:AdditiveChi2")
KERNELS.register("intersection", "dmkl.kernels.functions.standard:Intersection")
KERNELS.register("sigmoid", "dmkl.kernels.functions.standard:Sigmoid")
KERNELS.register("kl", "dmkl.kernels.functions.standard:KullbackLeibler")
KERNELS.register("distance", "dmkl.kernels.functions.standard:Distance")
KERNELS.register("precomputed", "dmkl.kernels.functions.standard:Precomputed")
KERNELS.register("similarity", "dmkl.kernels.functions.standard:Similarity")

__all__ = ["KERNELS", "Kernel", "Scales"]
