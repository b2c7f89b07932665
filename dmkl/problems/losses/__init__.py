"""Convex losses. A loss is a frozen dataclass in a file of its own and one line in the table here.

Wherever a formulation takes a loss, it takes a registered name ("hinge"), a table of a name and parameters
({"name": "epsilon", "epsilon": 0.2}), or a `Loss`. `loss_of` makes a `Loss` of either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from dmkl._util.registry import Registry
from dmkl._util.types import Table
from dmkl.config import construct, refuse_unknown
from dmkl.errors import ConfigError
from dmkl.problems.losses.base import Loss, Slack, Smooth, balanced

LOSSES: Registry[type[Loss]] = Registry("loss")
LOSSES.register("hinge", "dmkl.problems.losses.standard:Hinge")
LOSSES.register("logistic", "dmkl.problems.losses.standard:Logistic")
LOSSES.register("squared", "dmkl.problems.losses.standard:Squared")
LOSSES.register("epsilon", "dmkl.problems.losses.standard:Epsilon")

LossLike: TypeAlias = str | Table | Loss  # a name, a table { name = "...", parameters }, or the loss itself

__all__ = ["LOSSES", "Loss", "LossLike", "Slack", "Smooth", "balanced", "loss_constant", "loss_of", "loss_value"]


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
