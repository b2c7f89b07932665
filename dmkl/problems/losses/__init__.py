"""Convex losses: one file each, one line here."""

from __future__ import annotations

from collections.abc import Callable

from dmkl._util.registry import Registry
from dmkl.problems.losses.base import Loss, Slack, Smooth, balanced
from dmkl.problems.losses.epsilon import Epsilon
from dmkl.problems.losses.hinge import Hinge
from dmkl.problems.losses.logistic import Logistic
from dmkl.problems.losses.squared import Squared

LOSSES: Registry[Callable[[float], Loss]] = Registry("loss")  # what makes a loss, given an epsilon
LOSSES.register("hinge", lambda epsilon: Hinge())
LOSSES.register("logistic", lambda epsilon: Logistic())
LOSSES.register("squared", lambda epsilon: Squared())
LOSSES.register("epsilon", Epsilon)

__all__ = ["LOSSES", "Loss", "Slack", "Smooth", "balanced"]
