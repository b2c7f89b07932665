"""The definition of a metric."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dmkl._util.types import Float64
from dmkl.data import Labels


@dataclass(frozen=True)
class Metric:
    """One number that tells how good predictions are.

    Parameters
    ----------
    name : str
        As in `METRICS`, in configuration files and in results.
    tasks : tuple of str
        The tasks it is defined for: "binary", "multiclass", "multilabel", "regression".
    compute : callable
        `compute(scores, predicted, truth)`: scores of shape (n, m), the `Labels` predicted from them and the true
        `Labels`. Returns a float, or None if the metric is undefined on these samples.
    larger_is_better : bool
        False for errors.
    reported : tuple of str
        The tasks whose reports contain it whether or not it was selected.
    title : str
        Its name in reports; by default `name` with spaces.
    digits : int
        Significant digits in reports.
    """

    name: str
    tasks: tuple[str, ...]
    compute: Callable[[Float64, Labels, Labels], float | None]
    larger_is_better: bool = True
    reported: tuple[str, ...] = ()
    title: str = ""
    digits: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.name.replace("_", " "))

    def shown(self, value: float | None) -> str:
        """The value as reports print it, "-" if it is undefined."""
        return "-" if value is None or not math.isfinite(value) else f"{value:.{self.digits}g}"

    @property
    def sign(self) -> float:
        """What a value is multiplied by so that larger is better."""
        return 1.0 if self.larger_is_better else -1.0
