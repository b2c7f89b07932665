"""Which constants are tried: a grid as a user writes it, or each formulation's own."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dmkl.config import construct, refuse_unknown
from dmkl.data import Labels
from dmkl.errors import ConfigError, did_you_mean
from dmkl.solvers import FORMULATIONS, grid
from dmkl.stack import KernelStack

SEARCHED = ("C", "lam", "q", "p")  # constants that a formulation's own grid is about
Values = Mapping[str, Sequence[Any]]


def named_points(
    names: Sequence[str], values: Values, fixed: Mapping[str, Mapping[str, Any]]
) -> list[tuple[type[Any], dict[str, list[Any]]]]:
    """Formulations with the values that a user names for their constants, checked before any work.

    A constant goes to every formulation that has it. `fixed` holds constants of single formulations, as they are for
    training: those that are searched count only where they are among the values.
    """
    classes = [FORMULATIONS[name] for name in names]
    known = sorted({constant for cls in classes for constant in _constants(cls)})
    for constant, tried in values.items():
        if constant not in known:
            raise ConfigError(f"no formulation here has a constant '{constant}'", did_you_mean(constant, known))
        if isinstance(tried, str) or not isinstance(tried, Sequence) or not tried:
            raise ConfigError(
                f"the values of {constant} should be a list, not {tried!r}",
                f"write {constant} = [1, 10], or -g {constant}=1,10",
            )
    found = []
    for name, cls in zip(names, classes, strict=True):
        refuse_unknown(fixed.get(name, {}), _constants(cls), "[formulation]")
        given = {constant: [value] for constant, value in fixed.get(name, {}).items() if constant not in SEARCHED}
        given |= {constant: list(tried) for constant, tried in values.items() if constant in _constants(cls)}
        found.append((cls, _checked(name, cls, given)))
    return found


def refuse_labels(points: Sequence[tuple[type[Any], Values]], labels: Labels) -> None:
    """Those that one of the formulations is not for, real targets say, before any work."""
    for cls, given in points:
        grid(cls, **cls.usual_values(labels, given))[0].targets(labels)


def all_points(asked: Iterable[Any], stack: KernelStack, labels: Labels) -> list[Any]:
    """Formulations as they are; of classes, and of classes with values, what is worth trying on these data."""
    points: list[Any] = []
    for one in asked:
        if isinstance(one, type | tuple):
            cls, given = one if isinstance(one, tuple) else (one, {})
            for table in cls.usual_grids(stack, labels, given):
                points += grid(cls, **table)
        else:
            points.append(one)
    return list(dict.fromkeys(points))


def paths(points: Sequence[Any]) -> list[list[int]]:
    """The numbers of the points in paths of neighbours, each to be walked from its first on.

    Points of a path differ in numbers only: a fit with another loss, mode or norm is no place to start from.
    """
    kind = [_kind(point) for point in points]
    return [[i for i, other in enumerate(kind) if other == one] for one in dict.fromkeys(kind)]


def _kind(point: Any) -> tuple[Any, ...]:
    values = (getattr(point, name) for name in _constants(type(point)))
    return type(point), *(None if type(value) in (int, float) else value for value in values)


def _constants(cls: type[Any]) -> list[str]:
    return [field.name for field in dataclasses.fields(cls)]


def _checked(name: str, cls: type[Any], given: Values) -> dict[str, list[Any]]:
    """The values as the formulation takes them (norm = 2 is the text "2"), each tried out beside the first others."""
    hints = typing.get_type_hints(cls)
    others = {} if "lam" in given else {constant: values[0] for constant, values in cls.usual.items()}
    others |= {constant: values[0] for constant, values in given.items()}

    def taken(constant: str, value: Any) -> Any:
        table = {**others, constant: value}
        texts = {key: str(one) if hints.get(key) is str else one for key, one in table.items()}
        return getattr(construct(cls, texts, f"the grid of {name}:"), constant)

    return {constant: [taken(constant, value) for value in values] for constant, values in given.items()}
