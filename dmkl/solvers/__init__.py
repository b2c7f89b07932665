"""Formulations and the algorithms that solve them: one file an algorithm, one line here."""

from typing import Any

from dmkl._util.registry import Registry
from dmkl.solvers.api import Fit, solve
from dmkl.solvers.mikl import MIKL
from dmkl.solvers.mkl import L1MKL, VSKL, LpMKL
from dmkl.solvers.obscure import Obscure
from dmkl.solvers.path import grid, solve_path
from dmkl.solvers.problem import Formulation, describe
from dmkl.solvers.shared import SharedMKL
from dmkl.solvers.spicy import SpicyMKL
from dmkl.solvers.uniform import UniformMKL

FORMULATIONS: Registry[type[Any]] = Registry("formulation")
FORMULATIONS.register("uniform", UniformMKL)
FORMULATIONS.register("vskl", VSKL)
FORMULATIONS.register("l1", L1MKL)
FORMULATIONS.register("lp", LpMKL)
FORMULATIONS.register("shared", SharedMKL)
FORMULATIONS.register("spicy", SpicyMKL)
FORMULATIONS.register("obscure", Obscure)
FORMULATIONS.register("mikl", MIKL)

__all__ = [
    "FORMULATIONS",
    "L1MKL",
    "MIKL",
    "VSKL",
    "Fit",
    "Formulation",
    "LpMKL",
    "Obscure",
    "SharedMKL",
    "SpicyMKL",
    "UniformMKL",
    "describe",
    "grid",
    "solve",
    "solve_path",
]
