"""Many constants over one stack, each fit starting from its neighbour's solution."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

from numpy.typing import ArrayLike

from dmkl._util.types import StrPath
from dmkl.data import Labels
from dmkl.events import Observer
from dmkl.problems.base import Constant, Formulation, describe
from dmkl.solvers.api import Fit, solve
from dmkl.stack import KernelStack

F = TypeVar("F", bound=Formulation)


class SolveOptions(TypedDict, total=False):
    """The options of `solve` that are the same for every fit of a path."""

    tol: float
    oracle: str | None
    method: str | None
    client: object
    seed: int
    sample_weight: ArrayLike | None
    max_rounds: int
    max_seconds: float
    observer: Observer


def grid(formulation: Callable[..., F], **values: Sequence[Constant]) -> list[F]:
    """Formulations for every combination of constants, ordered so that neighbours differ in one constant by one step.

    Parameters
    ----------
    formulation : type
        The class of the formulation.
    **values : sequence
        The values of each constant, by its name.

    Returns
    -------
    list of Formulation
        One for each combination. The first constant changes fastest, upwards and downwards in turn.

    Examples
    --------
    >>> import dmkl
    >>> [(point.q, point.C) for point in dmkl.grid(dmkl.VSKL, q=(1, 2, 3), C=(1, 10))]
    [(1, 1), (2, 1), (3, 1), (3, 10), (2, 10), (1, 10)]
    """
    order: list[tuple[Constant, ...]] = [()]
    for choices in values.values():
        turns = itertools.cycle([order, order[::-1]])
        order = [(*point, value) for value in choices for point in next(turns)]
    return [formulation(**dict(zip(values, point, strict=True))) for point in order]


def solve_path(
    stack: KernelStack,
    y: ArrayLike | Labels,
    formulations: Iterable[Formulation],
    *,
    start: Fit | None = None,
    folder: StrPath | None = None,
    **options: Unpack[SolveOptions],
) -> Iterator[Fit]:
    """Solve one formulation after the other, each from the solution of the one before.

    Parameters
    ----------
    stack : KernelStack
        The s kernels over n samples.
    y : array (n,) or (n, m), or Labels
        As for `solve`.
    formulations : iterable of Formulation
        The problems in the order of the path, as `grid` makes them.
    start : Fit, optional
        The fit that the first one starts from.
    folder : str or path, optional
        A folder for a checkpoint of each fit; a path that was cut short continues from there.
    **options
        The other options of `solve`.

    Yields
    ------
    Fit
        The fit of each formulation, as soon as it is done.

    Raises
    ------
    DmklError
        As `solve` does.

    Examples
    --------
    >>> import numpy as np, dmkl
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> stack = dmkl.KernelStack.from_array(np.stack([X @ X.T, (1 + X @ X.T) ** 2]))
    >>> points = dmkl.grid(dmkl.LpMKL, p=(1, 2), C=(0.1, 1.0))
    >>> [fit.converged for fit in dmkl.solve_path(stack, X[:, 0] > 0, points)]
    [True, True, True, True]
    """
    for formulation in formulations:
        name = f"{describe(formulation).replace(' ', '-')}.checkpoint"
        kept = Path(folder) / name if folder is not None else None
        start = solve(stack, y, formulation, start=start, checkpoint=kept, **options)
        yield start
