"""Convex losses l(y, f), f the score with its intercept: the interface that solvers use, and the table.

A loss is a frozen dataclass and one line in the table here. Wherever a formulation takes a loss, it takes a registered
name ("hinge"), a table of a name and parameters ({"name": "epsilon", "epsilon": 0.2}), or a `Loss`. `loss_of` makes a
`Loss` of either.

Dual variables are rho = -dl/df (FORMULATIONS section 2). Their penalty l*(y, -rho) is a smooth function plus, where the
loss has kinks, one term per slack: a hinge is 1 - yf + (a slack above) - (a slack below). Solvers that need smooth
functions treat slacks as variables of their own instead of smoothing the kinks away.
"""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self, TypeAlias

import numpy as np

from dmkl._util.registry import Registry
from dmkl._util.types import Float64, Table
from dmkl.config import construct, refuse_unknown
from dmkl.errors import ConfigError

NEGLIGIBLE = 1e-10  # of the range of rho, of a slope, or of a step
SLOPE_STEPS = 50  # of Newton's method, at most


@dataclass(frozen=True)
class Slack:
    """One variable t in [low, high] a sample, which moves the sample's score by `sign * t` and costs `cost * t`."""

    sign: Float64
    cost: Float64 | float
    low: float
    high: float


@dataclass(frozen=True)
class Smooth:
    """A smooth function of rho: its sum over the samples, its gradient, and its second derivatives."""

    value: float
    gradient: Float64
    curvature: Float64


@dataclass(frozen=True)
class Loss(ABC):
    """A convex loss; its dataclass fields are its parameters.

    In all methods y (n,) holds signs -1/+1 or real targets, f (n,) scores with their intercept, and rho (n,) dual
    variables. `counts` is no parameter but the sample weights, which `counting` sets.
    """

    regression: ClassVar[bool] = False  # whether y may be any real numbers
    sparse: ClassVar[bool] = False  # whether rho = 0 for samples that fit well, so that working sets of samples help

    counts: Float64 | float = field(default=1.0, init=False, repr=False, compare=False)

    def counting(self, counts: Float64 | float) -> Self:
        """The same loss with sample weights: c l(y, f) has the conjugate c l*(y, -rho / c)."""
        weighted = copy.copy(self)
        object.__setattr__(weighted, "counts", counts)
        return weighted

    @classmethod
    def parameters(cls) -> list[str]:
        """The names of the parameters."""
        return [parameter.name for parameter in dataclasses.fields(cls) if parameter.init]

    @abstractmethod
    def total(self, y: Float64, f: Float64) -> float:
        """The sum of losses."""

    @abstractmethod
    def conjugate(self, y: Float64, rho: Float64) -> float:
        """The sum of l*(y, -rho), for rho in its domain."""

    @abstractmethod
    def into_domain(self, y: Float64, rho: Float64) -> Float64:
        """The nearest rho with a finite conjugate. The domain of every loss is an interval that contains 0."""

    @abstractmethod
    def smooth(self, y: Float64, rho: Float64) -> Smooth | None:
        """The smooth part of the conjugate; None outside its domain."""

    def slopes(self, y: Float64, f: Float64) -> Float64:
        """rho = -dl/df at these scores; where the loss has a kink, that of one side or between them.

        A slack inside its range takes what the loss has beside its smooth part, at the price of its cost.
        """
        rho, smooth_scores = self.into_domain(y, self.null(y)), f
        priced, prices = np.zeros(len(y), dtype=bool), np.zeros(len(y))
        for slack, value in zip(self.slacks(y), self.slack_values(y, f), strict=True):
            inside = (slack.low < value) & (value < slack.high)
            priced, prices = priced | inside, np.where(inside, -slack.sign * slack.cost, prices)
            smooth_scores = smooth_scores - slack.sign * value
        for _ in range(SLOPE_STEPS):
            smooth = self.smooth(y, rho)
            assert smooth is not None
            if not smooth.curvature.all():  # the loss is piecewise linear: it is all slacks
                rho = np.zeros(len(y))
                break
            step = self.shortened(y, rho, -(smooth.gradient + smooth_scores) / smooth.curvature)
            before, rho = rho, self.into_domain(y, rho + step)
            if (np.abs(rho - before) <= NEGLIGIBLE * np.abs(rho)).all():
                break
        return np.where(priced, prices, rho)

    def shortened(self, y: Float64, rho: Float64, step: Float64) -> Float64:
        """`step` from rho, cut short for samples that would leave an open domain; slacks take care of closed ones."""
        return step

    def slacks(self, y: Float64) -> list[Slack]:
        """The slacks that make up the kinks of the loss; none for a smooth loss."""
        return []

    def slack_values(self, y: Float64, f: Float64) -> list[Float64]:
        """The values of the slacks that cost least at these scores."""
        return []

    @abstractmethod
    def null(self, y: Float64) -> Float64:
        """A rho in the domain that sums to zero, good for a model that is only an intercept."""

    @abstractmethod
    def intercept(self, y: Float64, scores: Float64) -> float:
        """The intercept that minimises the sum of losses at `scores` (without intercept)."""

    def margins(self, y: Float64, f: Float64) -> Float64:
        """At least 1 where rho = 0 is optimal, larger for scores farther inside that region; only sparse losses have
        such a region."""
        return np.zeros(len(y))

    def mean(self, values: Float64) -> float:
        """The mean over samples, each as often as it counts; of equal values it is that value, without rounding."""
        counts, first = np.broadcast_to(self.counts, values.shape), float(values[0])
        return first + float((counts * (values - first)).sum() / counts.sum())


LOSSES: Registry[type[Loss]] = Registry("loss")
LOSSES.register("hinge", "dmkl.problems.losses.standard:Hinge")
LOSSES.register("logistic", "dmkl.problems.losses.standard:Logistic")
LOSSES.register("squared", "dmkl.problems.losses.standard:Squared")
LOSSES.register("epsilon", "dmkl.problems.losses.standard:Epsilon")

LossLike: TypeAlias = str | Table | Loss  # a name, a table { name = "...", parameters }, or the loss itself


def loss_of(value: LossLike, epsilon: float = 0.1) -> Loss:
    """The loss that a name, a table or a `Loss` stands for.

    Parameters
    ----------
    value : a registered name, a table with the key "name" and parameters of that loss, or a `Loss`.
    epsilon : the parameter "epsilon" of a loss that has one, unless the table states it.

    Raises
    ------
    ConfigError
        The name is unknown, or a parameter is unknown, of the wrong type or out of range.
    """
    if isinstance(value, Loss):
        return value.counting(1.0)
    if not isinstance(value, Mapping):
        value = {"name": value}
    name = value.get("name")
    if not isinstance(name, str):
        raise ConfigError(f"loss {value!r} has no name", 'write { name = "epsilon", epsilon = 0.2 }, or a name alone')
    cls = LOSSES[name]
    parameters = {key: number for key, number in value.items() if key != "name"}
    refuse_unknown(parameters, cls.parameters(), f"the loss {name}")
    if "epsilon" in cls.parameters():
        parameters.setdefault("epsilon", epsilon)
    return construct(cls, parameters, f"the loss {name}:")


def loss_constant(value: LossLike) -> str | Loss:
    """The form in which a formulation keeps its loss: the name of a loss with no parameters stated, else a `Loss`.

    Both compare by value and can be hashed. Equal losses have equal forms.
    """
    if isinstance(value, str):
        return value
    loss = loss_of(value)
    stated = loss.parameters() if isinstance(value, Loss) else value.keys() - {"name"}
    return loss if stated else _name(loss)


def loss_value(value: LossLike) -> str | Table:
    """A loss in the plain values of TOML and JSON, from which `loss_of` makes an equal loss."""
    constant = loss_constant(value)
    if isinstance(constant, str):
        return constant
    return {"name": _name(constant), **{key: getattr(constant, key) for key in constant.parameters()}}


def _name(loss: Loss) -> str:
    """The registered name of a loss, or that of its class."""
    return next((name for name, cls in LOSSES.items() if cls is type(loss)), type(loss).__name__)


def balanced(rho: Float64) -> Float64:
    """rho with its positive or its negative part scaled down so that it sums to zero; it stays in the domain."""
    up, down = float(rho[rho > 0].sum()), float(-rho[rho < 0].sum())
    if up == down:
        return rho
    if up > down:
        return np.where(rho > 0, rho * (down / up), rho)
    return np.where(rho < 0, rho * (up / down), rho)


def sparse_clip(rho: Float64, low: Float64 | float, high: Float64 | float) -> Float64:
    """rho in [low, high], with zeros for values that are only rounding."""
    clipped = np.clip(rho, low, high)
    return np.where(np.abs(clipped) < NEGLIGIBLE * high, 0.0, clipped)


def lowest(breaks: Float64, rises: Float64 | float, below: float) -> float:
    """The minimiser of a convex piecewise linear function of one variable.

    Its slope is -below left of all `breaks` and increases by `rises` at each of them.
    """
    order = np.argsort(breaks, kind="stable")
    slope = np.broadcast_to(rises, breaks.shape)[order].cumsum()
    rounding = NEGLIGIBLE * slope[-1]
    left = min(int(slope.searchsorted(below - rounding)), len(order) - 1)
    right = min(int(slope.searchsorted(below + rounding, side="right")), len(order) - 1)
    return 0.5 * float(breaks[order[left]] + breaks[order[right]])


__all__ = [
    "LOSSES",
    "Loss",
    "LossLike",
    "Slack",
    "Smooth",
    "balanced",
    "loss_constant",
    "loss_of",
    "loss_value",
    "lowest",
    "sparse_clip",
]
