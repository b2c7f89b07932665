"""Performance profiles (Dolan and More 2002): on which share of the problems a method is within a factor of the best.

Times below the floor count as the floor, because their ratios are noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

FLOOR = 0.02  # seconds

Seconds = Mapping[str, float]  # of the methods that solved a problem


def ratios(seconds: Seconds, methods: Iterable[str]) -> dict[str, float]:
    """Time of every method over that of the best one; infinite for methods that did not solve the problem."""
    counted = {method: max(time, FLOOR) for method, time in seconds.items()}
    best = min(counted.values(), default=math.inf)
    return {method: counted[method] / best if method in counted else math.inf for method in methods}


def within(found: Sequence[float], factor: float) -> float:
    """The share of these ratios that are at most the factor; nan of none."""
    return sum(ratio <= factor for ratio in found) / len(found) if found else math.nan


def profile(found: Sequence[float], most: float) -> tuple[list[float], list[float]]:
    """The steps of the profile, as the corners of a line: factors from 1 to `most`, and shares."""
    factors, shares = [1.0], [within(found, 1.0)]
    for factor in sorted({ratio for ratio in found if 1.0 < ratio <= most}):
        factors += [factor, factor]
        shares += [shares[-1], within(found, factor)]
    return [*factors, most], [*shares, shares[-1]]


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float | None:
    """The exponent of growth: least squares on logarithms, over the larger half of the sizes, at least two."""
    known = sorted(zip(sizes, seconds, strict=True))
    known = known[min(len(known) // 2, max(len(known) - 2, 0)) :]
    if len(known) < 2:
        return None
    x, y = ([math.log(value) for value in column] for column in zip(*known, strict=True))
    middle, level = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - middle) ** 2 for a in x)
    return sum((a - middle) * (b - level) for a, b in zip(x, y, strict=True)) / spread
