"""Proximal minimisation with Newton inside, for any convex loss: what SpicyMKL and UniformMKL solve their blocks by."""

from dmkl.solvers.proximal.method import minimise
from dmkl.solvers.proximal.operators import Held, Streamed
from dmkl.solvers.proximal.points import Found, Penalty, Start

__all__ = ["Found", "Held", "Penalty", "Start", "Streamed", "minimise"]
