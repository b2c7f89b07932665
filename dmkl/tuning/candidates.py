"""Which formulations and constants are tried: a grid that a user writes, or the usual one of each formulation."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Mapping, Sequence

from dmkl.config import construct, refuse_unknown
from dmkl.data import Labels
from dmkl.errors import ConfigError, did_you_mean
from dmkl.problems import FORMULATIONS, Formulation
from dmkl.problems.base import Candidates, Constant, Values
from dmkl.solvers import grid
from dmkl.stack import KernelStack

SEARCHED = ("C", "lam", "q", "p")  # constants that a formulation's own grid is about
Tables = tuple[type[Formulation], Candidates]  # a formulation with values of some of its constants
Candidate = Formulation | type[Formulation] | Tables


def named_candidates(
    names: Sequence[str], values: Candidates, fixed: Mapping[str, Mapping[str, Constant]]
) -> list[Tables]:
    """Formulations with the values that a user names for their constants, checked before any work.

    Parameters
    ----------
    names : sequence of str
        Names in `FORMULATIONS`.
    values : mapping of str to sequences
        Values by constant; a constant goes to every formulation that has it.
    fixed : mapping of str to mappings
        Constants of single formulations, as they are for training. Of those that are searched (`SEARCHED`) only the
        ones in `values` count.

    Returns
    -------
    list of pairs
        A formulation class and the values of its constants.

    Raises
    ------
    ConfigError
        If no formulation has a constant of that name, or if a value is not allowed.
    """
    classes = [FORMULATIONS[name] for name in names]
    known = sorted({constant for cls in classes for constant in constant_names(cls)})
    for constant, tried in values.items():
        if constant not in known:
            raise ConfigError(f"no formulation here has a constant '{constant}'", did_you_mean(constant, known))
        if isinstance(tried, str) or not isinstance(tried, Sequence) or not tried:
            raise ConfigError(
                f"the values of {constant} should be a list, not {tried!r}",
                f"write {constant} = [1, 10], or -g {constant}=1,10",
            )
    found: list[Tables] = []
    for name, cls in zip(names, classes, strict=True):
        own = fixed.get(name, {})
        refuse_unknown(own, constant_names(cls), "[formulation]")
        chosen: Values = {constant: [value] for constant, value in own.items() if constant not in SEARCHED}
        chosen |= {constant: list(tried) for constant, tried in values.items() if constant in constant_names(cls)}
        found.append((cls, _checked(name, cls, chosen)))
    return found


def refuse_labels(candidates: Iterable[Tables], labels: Labels) -> None:
    """Raise an error before any work if one of the formulations is not for these labels or targets."""
    for cls, values in candidates:
        grid(cls, **cls.usual_values(labels, values))[0].targets(labels)


def all_candidates(asked: Iterable[Candidate], stack: KernelStack, labels: Labels) -> list[Formulation]:
    """Formulations without repetition; a class, with or without values, stands for its usual grid on these data."""
    found: list[Formulation] = []
    for one in asked:
        if isinstance(one, Formulation):
            found.append(one)
        else:
            cls, values = one if isinstance(one, tuple) else (one, {})
            for table in cls.usual_grids(stack, labels, values):
                found += grid(cls, **table)
    return list(dict.fromkeys(found))


def paths(candidates: Sequence[Formulation]) -> list[list[int]]:
    """The numbers of the candidates in paths of warm starts.

    Candidates of one path differ only in numbers: the solution for another loss, mode or norm is no useful start.
    """
    kind = [_kind(candidate) for candidate in candidates]
    return [[i for i, other in enumerate(kind) if other == one] for one in dict.fromkeys(kind)]


def constant_names(cls: type[Formulation]) -> list[str]:
    """The constants of a formulation, in the order of its definition."""
    return [field.name for field in dataclasses.fields(cls)]


def _kind(candidate: Formulation) -> tuple[object, ...]:
    values = (getattr(candidate, name) for name in constant_names(type(candidate)))
    return type(candidate), *(None if type(value) in (int, float) else value for value in values)


def _checked(name: str, cls: type[Formulation], values: Candidates) -> Values:
    """The values converted as the formulation expects them (norm = 2 becomes "2"), each checked with the first values
    of the other constants."""
    hints = typing.get_type_hints(cls)
    others = {} if "lam" in values else {constant: tried[0] for constant, tried in cls.usual.items()}
    others |= {constant: tried[0] for constant, tried in values.items()}

    def converted(constant: str, value: Constant) -> Constant:
        table = {**others, constant: value}
        texts = {key: str(one) if hints.get(key) is str else one for key, one in table.items()}
        checked: Constant = getattr(construct(cls, texts, f"the grid of {name}:"), constant)
        return checked

    return {constant: [converted(constant, value) for value in tried] for constant, tried in values.items()}
