"""Many constants over one stack, each fit starting where its neighbour ended."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dmkl._util.types import StrPath
from dmkl.problems.base import Formulation, describe
from dmkl.solvers.api import Fit, solve
from dmkl.stack import KernelStack


def grid(formulation: Any, **values: Sequence[Any]) -> list[Any]:
    """`formulation(**constants)` for every combination, ordered so that neighbours differ in one step of one constant.

    `grid(VSKL, q=(1, 2, inf), C=(1, 10))` goes through q upwards at C = 1 and downwards at C = 10.
    """
    order: list[tuple[Any, ...]] = [()]
    for choices in values.values():
        turns = itertools.cycle([order, order[::-1]])
        order = [(*point, value) for value in choices for point in next(turns)]
    return [formulation(**dict(zip(values, point, strict=True))) for point in order]


def solve_path(
    stack: KernelStack,
    y: Any,
    formulations: Iterable[Formulation],
    *,
    start: Fit | None = None,
    folder: StrPath | None = None,
    **options: Any,
) -> Iterator[Fit]:
    """`solve` for one formulation after the other; `options` are those of `solve`.

    With a `folder`, each fit keeps its checkpoint there, so that a path that was cut short goes on where it was.
    """
    for formulation in formulations:
        kept = Path(folder) / f"{describe(formulation).replace(' ', '-')}.checkpoint" if folder is not None else None
        start = solve(stack, y, formulation, start=start, checkpoint=kept, **options)
        yield start
