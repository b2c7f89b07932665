"""Choosing constants and formulation by cross-validation."""

from dmkl.tuning.api import tune
from dmkl.tuning.choice import Tuned
from dmkl.tuning.points import named_points, refuse_labels

__all__ = ["Tuned", "named_points", "refuse_labels", "tune"]
