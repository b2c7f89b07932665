"""Formulations and the algorithms that solve them: one file an algorithm, one line here."""

from dmkl.problems import FORMULATIONS, Formulation, describe
from dmkl.problems.mikl import MIKL
from dmkl.problems.obscure import Obscure
from dmkl.problems.shared import SharedMKL
from dmkl.problems.spicy import SpicyMKL
from dmkl.problems.uniform import UniformMKL
from dmkl.problems.vskl import L1MKL, VSKL, LpMKL
from dmkl.solvers.api import Fit, grid, solve, solve_path

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
