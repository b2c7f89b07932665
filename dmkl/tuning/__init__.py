"""Choosing constants and formulation by cross-validation."""

from dmkl.tuning.search import named_candidates, refuse_unfit, tune
from dmkl.tuning.selection import Tuned

__all__ = ["Tuned", "named_candidates", "refuse_unfit", "tune"]
