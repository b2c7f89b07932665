"""OBSCURE: p-norms with a true multiclass loss, rows on demand."""

from dmkl.solvers.obscure.formulation import Obscure

__all__ = ["Obscure"]
