"""The problems of the proving ground: one table, each row of it crossed and dealt.

A row names a formulation and its axes. Of the axes in `cross` every combination becomes a problem, `times` over. The
axes in `deal` give each of them one value, from a deck that is shuffled and dealt to its end before it is shuffled
again: so every value occurs about as often as the others, in ever other company. An axis is a field of `Problem` or a
constant of the formulation; "data, n" is an axis of pairs. To extend the ground, add a value, a row, a bank
(kernels.py) or a source (samples.py).
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

import numpy as np

import dmkl
from dmkl.data import Labels, make_labels
from dmkl.problems.base import Formulation
from dmkl.problems.losses import LOSSES
from dmkl.problems.mikl import NORMS
from dmkl.stack import KernelStack
from pipelines.benchmarks.proving_ground.kernels import COLUMNS, largest_scale, most_samples
from pipelines.benchmarks.proving_ground.samples import SOURCES, Samples, draw

TOL, FINE_TOL, FINE_MOST = 1e-3, 1e-6, 300  # problems of up to 300 samples are there twice
SHORT = {
    "UniformMKL": "uniform",
    "VSKL": "vskl",
    "L1MKL": "l1",
    "LpMKL": "lp",
    "SpicyMKL": "spicy",
    "SharedMKL": "shared",
    "Obscure": "obscure",
    "MIKL": "mikl",
}
CHOICES = ("mode", "loss", "norm")  # constants that make a formulation another problem


@dataclass(frozen=True)
class OfLargest:
    """A constant as a share of the largest value at which the solution is not zero."""

    share: float


@dataclass(frozen=True)
class Problem:
    """Samples x kernels x formulation x tolerance."""

    row: str
    formulation: type[Formulation]
    data: str
    n: int
    kernels: str
    constants: Mapping[str, Any] = field(default_factory=dict)
    noise: float = 0.0  # share of wrong answers
    scale: float | str = 1.0  # factor of all kernels, or "mixed"; C is divided by the largest, unless `plain`
    plain: bool = False  # whether C is meant as it is
    targets: float = 1.0  # factor of real targets
    dtype: str = "float64"
    held: str = "memory"  # or "disk" or "computed": a store; or "features" of which sets of columns are kernels
    tol: float = TOL

    @property
    def kind(self) -> str:
        """The formulation with the choice that makes it a problem of its own."""
        values = {field.name: self.constants.get(field.name, field.default) for field in fields(self.formulation)}
        return " ".join([SHORT[self.formulation.__name__], *(values[name] for name in CHOICES if name in values)])

    @property
    def name(self) -> str:
        """Unique, in words that `--only` finds."""
        words = [SHORT[self.formulation.__name__]]
        words += [_word(key, value) for key, value in self.constants.items() if _word(key, value)]
        words += [self.data, f"n{self.n}", self.kernels]
        words += [f"noise{100 * self.noise:g}"] if self.noise else []
        words += [f"scale{self.scale}" if self.scale == "mixed" else f"scale{self.scale:g}"] if self.scale != 1 else []
        words += ["plain"] if self.plain else []
        words += [f"targets{self.targets:g}"] if self.targets != 1 else []
        words += ["float32"] if self.dtype == "float32" else []
        words += [self.held] if self.held != "memory" else []
        words += [f"tol{self.tol:g}"] if self.tol != TOL else []
        words += [self.row] if self.row not in words else []
        return " ".join(words)

    @property
    def seed(self) -> int:
        return zlib.crc32(self.data.encode())

    def samples(self) -> Samples:
        found = draw(self.data, self.n, self.noise, self.seed)
        return replace(found, y=found.y * self.targets) if SOURCES[self.data].task == "targets" else found

    def labels(self, y: Any) -> Labels:
        return make_labels(y, {"labels": "multilabel", "targets": "regression"}.get(SOURCES[self.data].task, "auto"))

    def formulated(self, stack: KernelStack, labels: Labels) -> Formulation:
        """The formulation with its constants in numbers."""
        found = dict(self.constants)
        if "C" in found and not isinstance(found["C"], OfLargest) and self.formulation is not dmkl.SpicyMKL:
            found["C"] /= 1.0 if self.plain else largest_scale(self.scale)
        if "ridge" in found:
            found["ridge"] *= largest_scale(self.scale)
        if isinstance(found.get("C"), OfLargest):
            least = dmkl.SpicyMKL(C=1.0, loss=found["loss"])
            found["C"] = found["C"].share * least.largest(stack, labels)
        if isinstance(found.get("lam"), OfLargest):
            found["lam"] = found["lam"].share * dmkl.MIKL.largest(stack, labels, found["norm"])
        return self.formulation(**found)


def _word(key: str, value: Any) -> str:
    if isinstance(value, OfLargest):
        return f"{key}{value.share:g}max"
    if isinstance(value, bool):
        return key if value else f"no-{key}"
    return value if isinstance(value, str) else f"{key}{value:g}"


# --- the table

Axes = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Row:
    name: str
    formulation: type[Formulation]
    cross: Axes = field(default_factory=dict)
    deal: Axes = field(default_factory=dict)
    times: int = 1
    tols: tuple[float, ...] = ()  # those of all problems; else the fine one, too, of small ones


TWO = (
    "sonar",
    "ionosphere",
    "liver",
    "pima",
    "wpbc",
    "breast_cancer",
    "titanic",
    "splice",
    "spambase",
    "parity",
    "ringnorm",
    "lowrank",
    "nothing",
    "copies",
    "unbalanced",
)
MANY = ("iris", "wine", "digits", "pendigits", "proteinfold", "leaves100", "mnist", "blobs5", "blobs40")
FEW = ("iris", "wine", "digits", "pendigits", "proteinfold", "mnist", "blobs5")  # classes
LABELLED = ("emotions", "scene", "yeast")
REAL = ("diabetes", "waves", "tails")

SMALL = (50, 90, 150, 200, 300, 600, 1200)
C = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3)
SHARES = (0.5, 0.1, 0.02, 3e-3, 5e-4, 1e-5, 5e-7)
BANKS = ("linear-feature", "linear-view", "poly-view", "gauss-view", "gauss-feature", "subsets30", "mixed", "lowrank")
ODD = ("duplicates", "zero", "identity", "one")
Q = (1.0, 1.5, 2.0, 3.0, 8.0, math.inf)
P = (1.0, 1.1, 1.25, 2.0, 4.0, math.inf)
OF_TARGETS = tuple(name for name, loss in LOSSES.items() if loss.regression)
OF_CLASSES = (*(name for name in LOSSES if name not in OF_TARGETS), "squared")
COMMON: Axes = {
    "n": SMALL,
    "noise": (0.0, 0.1, 0.3),
    "kernels": (*BANKS, *ODD),
    "scale": (1.0, 1.0, 1.0, 1e-6, 1e6, "mixed"),
    "dtype": ("float64", "float32"),
}
GROWTH: Axes = {
    "n": (1000, 2000, 4000, 8000),
    "data": ("parity",),
    "noise": (0.1,),
    "kernels": ("gauss-whole",),
    "dtype": ("float32",),
}
LARGE: Axes = {"noise": (0.1,), "dtype": ("float32",), "C": (1.0,)}
STORES: Axes = {
    "data": ("digits", "mnist", "pendigits", "spambase"),
    "n": (200, 600, 1500, 3000),
    "noise": (0.0, 0.1, 0.3),
    "kernels": ("gauss-view", "mixed", "linear-view"),
    "held": ("disk", "computed"),
}
WIDE: Axes = {"noise": (0.0, 0.1), "dtype": ("float32",)}
HUGE: Axes = {"data": ("sonar", "pima", "ringnorm", "wine"), "n": (150,), "kernels": ("poly-raw", "gauss-view")}

TABLE: tuple[Row, ...] = (
    # what users bring first: few samples, linear and polynomial kernels, which are of low rank
    Row(
        "core",
        dmkl.VSKL,
        {"q": Q, "data": ("iris", "wine", "breast_cancer"), "kernels": ("linear-feature", "poly-view")},
        {"C": (1.0,), "n": (1000,)},
        tols=(FINE_TOL,),
    ),
    # one weight vector a class
    Row("vskl", dmkl.VSKL, {"q": Q}, {**COMMON, "C": C, "data": (*TWO, *MANY, *LABELLED)}, times=5),
    Row("vskl", dmkl.VSKL, {"q": Q}, {"C": C, "data": ("flowers17",), "n": (200, 600), "kernels": ("gauss-view",)}),
    Row("l1", dmkl.L1MKL, {}, {**COMMON, "C": C, "data": (*TWO, *MANY, *LABELLED)}, times=20),
    Row("lp", dmkl.LpMKL, {"p": P}, {**COMMON, "C": C, "data": (*TWO, *MANY, *LABELLED)}, times=3),
    # the average kernel
    Row("uniform", dmkl.UniformMKL, {"intercept": (True, False)}, {**COMMON, "C": C, "data": (*TWO, *FEW)}, times=4),
    Row(
        "uniform",
        dmkl.UniformMKL,
        {"loss": tuple(loss for loss in OF_CLASSES if loss != "hinge")},
        {**COMMON, "C": C, "data": TWO},
        times=3,
    ),
    Row(
        "uniform",
        dmkl.UniformMKL,
        {"loss": OF_TARGETS},
        {**COMMON, "C": C, "data": REAL, "targets": (1.0, 1.0, 1e8, 1e-8)},
        times=3,
    ),
    # sparse among many kernels, any loss, elastic net
    Row(
        "spicy",
        dmkl.SpicyMKL,
        {"loss": OF_CLASSES},
        {**COMMON, "C": [OfLargest(share) for share in SHARES], "ridge": (0.0, 0.0, 0.1), "data": (*TWO, *FEW)},
        times=7,
    ),
    Row(
        "spicy",
        dmkl.SpicyMKL,
        {"loss": OF_TARGETS},
        {
            **COMMON,
            "C": [OfLargest(share) for share in SHARES],
            "ridge": (0.0, 0.0, 1.0),
            "data": REAL,
            "targets": (1.0, 1.0, 1e8, 1e-8),
        },
        times=5,
    ),
    Row(
        "spicy",
        dmkl.SpicyMKL,
        {"loss": OF_CLASSES, "C": (0.0,)},
        {"ridge": (0.01, 1.0, 100.0), "data": TWO, "n": SMALL, "kernels": BANKS, "noise": (0.1,)},
    ),
    # one weight vector for all classes or labels
    Row(
        "shared",
        dmkl.SharedMKL,
        {"mode": ("sum", "max"), "intercept": (True, False)},
        {**COMMON, "C": C, "data": (*MANY, *LABELLED, "parity", "nothing")},
        times=6,
    ),
    Row(
        "obscure",
        dmkl.Obscure,
        {"p": (1.01, 1.05, 1.25, 1.5, 2.0), "loss": ("multiclass", "hinge")},
        {**COMMON, "C": C, "data": (*MANY, "sonar", "ringnorm", "unbalanced")},
        times=2,
    ),
    Row(
        "obscure",
        dmkl.Obscure,
        {"p": (1.01, 1.25, 2.0), "loss": ("hinge",)},
        {**COMMON, "C": C, "data": LABELLED},
    ),
    Row(
        "obscure-losses",
        dmkl.Obscure,
        {"p": (1.01, 1.5, 2.0), "loss": tuple(loss for loss in OF_CLASSES if loss != "hinge")},
        {**COMMON, "C": C, "data": (*TWO, *FEW, *LABELLED)},
        times=2,
    ),
    Row(
        "obscure-losses",
        dmkl.Obscure,
        {"p": (1.01, 1.5), "loss": ("softmax",)},
        {**COMMON, "C": C, "data": FEW},
        times=2,
    ),
    Row(
        "obscure-losses",
        dmkl.Obscure,
        {"p": (1.01, 1.5, 2.0), "loss": OF_TARGETS},
        {**COMMON, "C": C, "data": REAL, "targets": (1.0, 1.0, 1e8, 1e-8)},
        times=2,
    ),
    # a coefficient for every sample and kernel, kernels of any kind
    Row(
        "mikl",
        dmkl.MIKL,
        {"norm": tuple(NORMS)},
        {
            **COMMON,
            "lam": [OfLargest(share) for share in (0.9, 0.3, 0.1, 0.01, 1e-3, 1e-5)],
            "n": (50, 100, 200, 300, 600),
            "kernels": ("indefinite", "nonsymmetric", "gauss-view", "linear-view", "lowrank", "zero", "one", "mixed"),
            "scale": (1.0, 1.0, 1e-6, 1e6, "mixed"),
            "data": (*TWO, "iris", "wine", "digits", "blobs5"),
        },
        times=4,
    ),
    Row(
        "mikl",
        dmkl.MIKL,
        {"norm": tuple(NORMS), "lam": (1.0, OfLargest(0.01))},
        {"n": (1000,), "data": ("parity",), "noise": (0.1,), "kernels": ("gauss-whole",)},
    ),
    Row(
        "mikl",
        dmkl.MIKL,
        {"norm": ("21;2",)},
        {"lam": (1.0,), "n": (1258,), "data": ("digits",), "kernels": ("gauss-view",)},
    ),
    # very many kernels
    Row("many", dmkl.L1MKL, {"kernels": ("subsets300", "subsets3000")}, {**WIDE, "data": TWO, "n": (200, 50), "C": C}),
    Row(
        "many",
        dmkl.SpicyMKL,
        {"kernels": ("subsets1000", "subsets3000"), "loss": OF_CLASSES},
        {**WIDE, "data": ("sonar", "splice", "ringnorm"), "n": (200,), "C": (OfLargest(0.1), OfLargest(0.01))},
    ),
    Row("many", dmkl.VSKL, {"q": (1.0, 2.0, math.inf)}, {**WIDE, "kernels": ("subsets300",), "data": TWO, "n": (200,)}),
    Row("many", dmkl.LpMKL, {"p": (1.5, 4.0)}, {**WIDE, "kernels": ("subsets1000",), "data": TWO, "n": (100,)}),
    Row(
        "many",
        dmkl.SharedMKL,
        {"mode": ("sum", "max"), "kernels": ("subsets300", "subsets1000")},
        {**WIDE, "data": ("digits", "wine", "mnist"), "n": (50, 200)},
    ),
    Row(
        "many",
        dmkl.Obscure,
        {"p": (1.01, 1.5)},
        {**WIDE, "C": (1.0,), "kernels": ("subsets300",), "data": FEW, "n": (200,)},
    ),
    Row(
        "many",
        dmkl.MIKL,
        {"norm": ("21;2", "1")},
        {**WIDE, "lam": (OfLargest(0.1),), "kernels": ("subsets300",), "data": TWO, "n": (80,)},
    ),
    Row(
        "many",
        dmkl.L1MKL,
        {"kernels": tuple(COLUMNS), "held": ("features",)},
        {**WIDE, "data": ("sonar",), "n": (200,), "C": (1.0,)},
        tols=(TOL,),
    ),
    Row(
        "many",
        dmkl.SpicyMKL,
        {"kernels": tuple(COLUMNS), "held": ("features",), "loss": OF_CLASSES},
        {**WIDE, "data": ("sonar",), "n": (200,), "C": (OfLargest(0.1),)},
        tols=(TOL,),
    ),
    # stores: kernels that are read or computed in every pass
    Row("store", dmkl.VSKL, {"q": (1.0, 2.0, math.inf)}, {**STORES, "C": C}),
    Row("store", dmkl.L1MKL, {}, {**STORES, "C": C}, times=2),
    Row("store", dmkl.SpicyMKL, {"loss": ("hinge", "squared")}, {**STORES, "C": (OfLargest(0.05),)}),
    Row("store", dmkl.SharedMKL, {"mode": ("sum", "max")}, {**STORES, "C": C}),
    Row("store", dmkl.Obscure, {"p": (1.05, 2.0)}, {**STORES, "C": C}),
    Row("store", dmkl.UniformMKL, {}, {**STORES, "C": C}),
    Row("store", dmkl.MIKL, {"norm": ("21;2",)}, {**STORES, "lam": (OfLargest(0.05),), "n": (200, 600)}),
    # values that are huge beside C
    Row("huge", dmkl.VSKL, {"q": (1.5, 2.0, math.inf)}, {**HUGE, "scale": (1e6,), "plain": (True,)}),
    Row("huge", dmkl.L1MKL, {"scale": (1e6, 1.0, "mixed")}, {**HUGE, "plain": (True,)}),
    Row("huge", dmkl.SharedMKL, {"mode": ("sum", "max")}, {**HUGE, "scale": (1e6,), "plain": (True,)}),
    Row("huge", dmkl.Obscure, {"p": (1.05, 1.5)}, {**HUGE, "C": (1.0,), "scale": (1e6,), "plain": (True,)}),
    Row(
        "huge",
        dmkl.SpicyMKL,
        {"loss": OF_CLASSES},
        {**HUGE, "C": (OfLargest(0.01),), "scale": (1e6,)},
    ),
    # noisy labels and dense support, growing
    Row("growth", dmkl.UniformMKL, GROWTH, tols=(TOL,)),
    Row("growth", dmkl.L1MKL, GROWTH, tols=(TOL,)),
    Row("growth", dmkl.LpMKL, {"p": (2.0,), **GROWTH}, tols=(TOL,)),
    Row("growth", dmkl.VSKL, {"q": (2.0,), **GROWTH}, tols=(TOL,)),
    Row(
        "growth",
        dmkl.SpicyMKL,
        {"loss": OF_CLASSES, "C": (OfLargest(0.05),), **GROWTH},
        tols=(TOL,),
    ),
    Row(
        "growth",
        dmkl.MIKL,
        {"norm": ("21;2",), "lam": (OfLargest(0.05),), **GROWTH, "n": (250, 500, 1000, 2000)},
        tols=(TOL,),
    ),
    Row(
        "growth",
        dmkl.SharedMKL,
        {"mode": ("sum", "max"), **GROWTH, "data": ("mnist",), "n": (1000, 2000, 4000)},
        tols=(TOL,),
    ),
    Row(
        "growth",
        dmkl.Obscure,
        {"p": (1.05,), "C": (1.0,), **GROWTH, "data": ("mnist",), "n": (1000, 2000, 4000)},
        tols=(TOL,),
    ),
    # many samples
    Row("large", dmkl.L1MKL, {"data": ("parity",), "n": (16000,), "kernels": ("gauss-two",)}, LARGE),
    Row("large", dmkl.VSKL, {"data": ("parity",), "n": (16000,), "kernels": ("gauss-two",)}, LARGE),
    Row("large", dmkl.L1MKL, {"data": ("parity",), "n": (16000,), "kernels": ("mixed",), "held": ("computed",)}, LARGE),
    Row("large", dmkl.VSKL, {"data": ("mnist",), "n": (4000, 8000), "kernels": ("gauss-whole",)}, LARGE),
    Row("large", dmkl.SharedMKL, {"data": ("mnist",), "n": (8000,), "kernels": ("gauss-whole",)}, LARGE),
    Row("large", dmkl.Obscure, {"data": ("mnist",), "n": (8000,), "kernels": ("gauss-whole",), "p": (1.05,)}, LARGE),
    Row("large", dmkl.LpMKL, {"data": ("ringnorm",), "n": (8000,), "kernels": ("linear-view",)}, LARGE),
    Row(
        "large",
        dmkl.VSKL,
        {"data": ("leaves100",), "n": (1600,), "kernels": ("gauss-view",)},
        {**LARGE, "noise": (0.0,)},
    ),
    Row(
        "large",
        dmkl.SharedMKL,
        {"data": ("leaves100",), "n": (1600,), "kernels": ("gauss-view",), "mode": ("sum", "max")},
        {**LARGE, "noise": (0.0,)},
    ),
)


@cache
def problems() -> tuple[Problem, ...]:
    """All problems, in the order of the table, but those that grow by their samples: then they share kernels.

    Small ones are there with both tolerances.
    """
    found: dict[str, Problem] = {}
    decks: dict[tuple[str, str], Deck] = {}
    for row in TABLE:
        for one in _of(row, decks):
            fine = (TOL, FINE_TOL) if one.n <= FINE_MOST else (TOL,)
            for tol in row.tols or fine:
                problem = replace(one, tol=tol)
                found.setdefault(problem.name, problem)  # the deck may deal the same hand again
    return tuple(sorted(found.values(), key=lambda problem: problem.n if problem.row == "growth" else 0))


def choose(only: str = "", skip: str = "", largest: int = 0, most: int = 0) -> list[Problem]:
    """Problems by words of their names, by their samples, and so many of those, drawn in an order of their own."""
    found = [
        problem
        for problem in problems()
        if (not only or _named(problem, only))
        and not (skip and _named(problem, skip))
        and problem.n <= (largest or problem.n)
    ]
    if not most:
        return found
    taken = {problem.name for problem in sorted(found, key=lambda problem: zlib.crc32(problem.name.encode()))[:most]}
    return [problem for problem in found if problem.name in taken]


def _named(problem: Problem, words: str) -> bool:
    """Whether all words of a part between commas are in the name; one that ends with a digit has to be a whole one."""
    name = problem.name.split()
    return any(
        all(any(word == own or (not word[-1:].isdigit() and word in own) for own in name) for word in part.split())
        for part in words.split(",")
    )


def _of(row: Row, decks: dict[tuple[str, str], Deck]) -> Iterator[Problem]:
    """The problems of a row, without their tolerances."""
    unknown = {"formulation", "row", "constants", "tol"} & {*row.cross, *row.deal}
    assert not unknown, f"{unknown} of {row.name} are no axes"
    for hand in itertools.product(*row.cross.values(), range(row.times)):
        values = dict(zip(row.cross, hand[:-1], strict=True))
        for axis, choices in row.deal.items():
            if axis not in values:
                key = f"{row.name} {axis}", repr(choices)
                values[axis] = decks.setdefault(key, Deck(choices, zlib.crc32(" ".join(key).encode()))).deal()
        axes = {field.name for field in fields(Problem)}
        constants = {axis: value for axis, value in values.items() if axis not in axes}
        values = {axis: value for axis, value in values.items() if axis in axes}
        source = SOURCES[values["data"]]
        values["n"] = min(values["n"], source.most, most_samples(values["kernels"], source.features))
        yield Problem(row.name, row.formulation, constants=constants, **values)


class Deck:
    """The values of an axis, dealt in shuffled rounds."""

    def __init__(self, values: Sequence[Any], seed: int) -> None:
        self._values, self._rng = list(values), np.random.default_rng(seed)
        self._left: list[Any] = []

    def deal(self) -> Any:
        if not self._left:
            self._left = [self._values[i] for i in self._rng.permutation(len(self._values))]
        return self._left.pop()
