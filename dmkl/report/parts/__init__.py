"""The parts of a report, in their order, and what they are made of.

A part receives the `Contents` of a run and returns its `Section`, or None if the run has nothing for it. A new part is
one file with a function and one line in the table here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dmkl._util.registry import Registry
from dmkl._util.types import Table
from dmkl.model import METRICS, Model, Predictions
from dmkl.report.markup import Figures, Section, number

NOUNS = {"multilabel": ("label", "labels"), "regression": ("target", "targets")}  # otherwise outputs are classes


@dataclass(frozen=True)
class Contents:
    """A run, read from its directory. Only `config` is always there; an unfinished run lacks the rest."""

    config: Table
    name: str = ""
    finished: bool = True
    model: Model | None = None
    summary: Table = field(default_factory=dict)  # by stage: kernels, train, score
    manifest: Table = field(default_factory=dict)
    rounds: list[Table] = field(default_factory=list)  # the RoundDone events
    predictions: Predictions | None = None
    timeline: Table = field(default_factory=dict)
    tuning: Table | None = None  # tuning.json
    tuning_drawing: str = ""  # tuning.svg

    @property
    def score(self) -> Table:
        return dict(self.summary.get("score", {}))

    @property
    def tol(self) -> float:
        return float(self.config["solve"]["tol"])


def noun(model: Model, count: int = 1) -> str:
    """The word for `count` outputs of the model: class, label or target, or its plural."""
    return NOUNS.get(model.task, ("class", "classes"))[count != 1]


def metric_title(name: str) -> str:
    """The name of a metric for people; a run of another version may have metrics that are unknown here."""
    return METRICS[name].title if name in METRICS else name.replace("_", " ")


def metric_value(name: str, value: float | None) -> Figures:
    """The value of a metric as it is printed."""
    return Figures(METRICS[name].shown(value) if name in METRICS else number(value))


Part = Callable[[Contents], Section | None]
PARTS: Registry[Part] = Registry("report part")  # by the anchor of the section in the page
PARTS.register("score", "dmkl.report.parts.scores:score")
PARTS.register("certificate", "dmkl.report.parts.certificate:certificate")
PARTS.register("weights", "dmkl.report.parts.weights:weights")
PARTS.register("samples", "dmkl.report.parts.scores:samples")
PARTS.register("outputs", "dmkl.report.parts.scores:outputs")
PARTS.register("confusion", "dmkl.report.parts.scores:confusion")
PARTS.register("curves", "dmkl.report.parts.scores:curves")
PARTS.register("relevance", "dmkl.report.parts.weights:relevance")
PARTS.register("sparsity", "dmkl.report.parts.weights:sparsity")
PARTS.register("tuning", "dmkl.report.parts.tuning:tuning")
PARTS.register("course", "dmkl.report.parts.course:course")
PARTS.register("time", "dmkl.report.parts.course:durations")
PARTS.register("cite", "dmkl.report.parts.certificate:citations")
PARTS.register("provenance", "dmkl.report.parts.certificate:provenance")
