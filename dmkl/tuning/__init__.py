"""Choosing constants and formulation by cross-validation."""

from dmkl.tuning.candidates import named_candidates, refuse_labels
from dmkl.tuning.search import tune
from dmkl.tuning.selection import Tuned

__all__ = ["Tuned", "named_candidates", "refuse_labels", "tune"]
