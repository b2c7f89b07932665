"""Formulations and the algorithms that solve them: one file an algorithm, one line here."""

from typing import Any

from dmkl.registry import Registry
from dmkl.solvers.api import Fit, solve
from dmkl.solvers.problem import describe
from dmkl.solvers.uniform import UniformMKL

FORMULATIONS: Registry[type[Any]] = Registry("formulation")
FORMULATIONS.register("uniform", UniformMKL)

__all__ = ["FORMULATIONS", "Fit", "UniformMKL", "describe", "solve"]
