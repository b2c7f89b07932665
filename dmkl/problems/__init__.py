"""What is minimised: the formulations, one line each, and the norms, proximal maps and losses they are made of."""

from __future__ import annotations

from dmkl._util.registry import Registry
from dmkl.problems.base import Formulation, describe

FORMULATIONS: Registry[type[Formulation]] = Registry("formulation")
FORMULATIONS.register("uniform", "dmkl.problems.uniform:UniformMKL")
FORMULATIONS.register("vskl", "dmkl.problems.vskl:VSKL")
FORMULATIONS.register("l1", "dmkl.problems.vskl:L1MKL")
FORMULATIONS.register("lp", "dmkl.problems.vskl:LpMKL")
FORMULATIONS.register("shared", "dmkl.problems.shared:SharedMKL")
FORMULATIONS.register("spicy", "dmkl.problems.spicy:SpicyMKL")
FORMULATIONS.register("obscure", "dmkl.problems.obscure:Obscure")
FORMULATIONS.register("mikl", "dmkl.problems.mikl:MIKL")

__all__ = ["FORMULATIONS", "Formulation", "describe"]
