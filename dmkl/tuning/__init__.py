"""Choosing constants and formulation by cross-validation."""

from dmkl.tuning.api import tune
from dmkl.tuning.choice import RULES, Tuned, check_rule
from dmkl.tuning.points import named_points

__all__ = ["RULES", "Tuned", "check_rule", "named_points", "tune"]
