"""Figure 4: seconds to a certified gap of 0.01 for 20 kernels while samples grow, with accuracy on held-out samples.

Kernels are like those of figure 3, in float32 as a store keeps them. Beside the accuracy is that of UniformMKL with the
same loss and the same share of the loss in all (the C that SpicyMKL names as its baseline's), and its seconds. Hinge,
which takes the most Newton steps, ends at 2,000 samples. Goal: every gap proved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dmkl
from pipelines.shared_weights.results import Row, progress, table
from pipelines.spicy.banks import SOURCES, Gaussian, Samples, gaussians, stacked
from pipelines.spicy.drawing import Line, Panel
from pipelines.spicy.fitting import LOSSES, Outcome, exponent, figures, groups, timed, warm_up

KERNELS, TOL = 20, 1e-2
CONSTANTS = (0.5, 5.0)
TESTED = 1000
HINGE_UP_TO = 2000
ONCE = 2000  # samples from which on nothing is repeated
AVERAGED = ("seconds", "average: seconds", "accuracy", "average: accuracy", "rounds", "outer", "Newton", "used")
COLUMNS = ("data", "C", "loss", "samples", *AVERAGED)


@dataclass(frozen=True)
class Plan:
    """Sizes of each data set; splice has 3,175 samples in all."""

    sizes: dict[str, tuple[int, ...]]
    splits: int
    repetitions: int


WHOLE = Plan({"ringnorm": (200, 500, 1000, 2000, 4000), "splice": (200, 500, 1000, 2000)}, 3, 2)
QUICK = Plan({"ringnorm": (200, 400, 800), "splice": (200, 400, 800)}, 1, 1)


def accuracy(fit: dmkl.Fit, bank: list[Gaussian], samples: Samples, train: int) -> float:
    """Of signs of held-out samples."""
    inside, outside = samples.X[:train], samples.X[samples.train :]
    scores = np.full(len(outside), float(fit.intercept))
    weights, coef = np.ravel(fit.weights), fit.coef
    support = np.flatnonzero(coef)
    for a in np.flatnonzero(weights):
        scores += weights[a] * (bank[a].matrix(outside, inside[support]) @ coef[support])
    return float(np.mean((scores > 0) == (samples.y[samples.train :] > 0)))


def measured(plan: Plan) -> Iterator[Row]:
    """A row a size, constant and loss."""
    for name, source in SOURCES.items():
        for split in range(plan.splits):
            rng = np.random.default_rng(split)
            samples = source(max(plan.sizes[name]), TESTED, rng)
            bank = gaussians(samples.X.shape[1], KERNELS, rng)
            for n in plan.sizes[name]:
                K = stacked(bank, samples.X[:n], np.float32)
                for C in CONSTANTS:
                    for loss in LOSSES if n <= HINGE_UP_TO else LOSSES[1:]:
                        repetitions = plan.repetitions if n < ONCE else 1
                        row = compared(K, bank, samples, n, dmkl.SpicyMKL(C=C, loss=loss), repetitions)
                        yield {"data": name, "C": C, "loss": loss, "split": split, "samples": n} | row
                progress(f"{name}, split {split}, {n:,} samples: done")


def compared(
    K: NDArray[Any], bank: list[Gaussian], samples: Samples, n: int, formulation: dmkl.SpicyMKL, repetitions: int
) -> Row:
    """One fit and its baseline's."""
    seconds, _, fit = timed(K, samples.y[:n], formulation, TOL, repetitions)
    spent, _, average = timed(K, samples.y[:n], formulation.baseline(fit.weights), TOL, 1)
    row = {"seconds": seconds, "accuracy": accuracy(fit, bank, samples, n)} | figures(fit)
    return row | {"average: seconds": spent, "average: accuracy": accuracy(average, bank, samples, n)}


def setting(row: Row) -> Any:
    return row["data"], row["C"], row["loss"]


def averaged(rows: list[Row]) -> Row:
    return rows[0] | {key: float(np.mean([row[key] for row in rows])) for key in AVERAGED}


def run(quick: bool, splits: int | None) -> Outcome:
    plan = QUICK if quick else WHOLE
    plan = Plan(plan.sizes, splits or plan.splits, plan.repetitions)
    for loss in LOSSES:
        warm_up([dmkl.SpicyMKL(loss=loss), dmkl.UniformMKL(loss=loss)], (np.float32,))
    rows = list(measured(plan))
    means = [averaged(same) for same in groups(rows, lambda row: (setting(row), row["samples"])).values()]
    slopes, panels = [], []
    for name, some in groups(means, lambda row: row["data"]).items():
        lines = []
        for number, ((_, C, loss), series) in enumerate(groups(some, setting).items()):
            sizes, seconds = [row["samples"] for row in series], [row["seconds"] for row in series]
            slope = exponent(sizes, seconds)
            slopes.append({"data": name, "C": C, "loss": loss, "exponent": slope})
            label = f"{loss}, C = {C:g}: exponent {slope:.2f}"
            lines.append(Line(label, sizes, seconds, "os^v"[number % 4] + "-", f"C{number}"))
        panels.append(Panel(f"{name}, {KERNELS} kernels, gap {TOL:g}", "samples", "seconds", lines))
    worst = max(row["gap"] for row in rows)
    parts = [
        f"# Seconds to a gap of {TOL:g}, {KERNELS} kernels, means of {plan.splits} draws",
        table(means, COLUMNS),
        "## Exponents: growth of seconds with the number of samples",
        table(slopes, ("data", "C", "loss", "exponent")),
        f"Largest gap {worst:.1e}, to be at most {TOL:g}{': MISSED' if worst > TOL else ''}.",
    ]
    return Outcome(parts, {"rows": rows, "exponents": slopes}, panels, worst > TOL)
