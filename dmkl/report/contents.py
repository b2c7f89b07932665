"""What a report is made of: as much of a run as there is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dmkl.model import METRICS, Model, Predictions
from dmkl.report.markup import Figures, number

NOUNS = {"multilabel": ("label", "labels"), "regression": ("target", "targets")}  # what outputs are but classes


@dataclass(frozen=True)
class Contents:
    """Everything but `config` may still be missing in a run that is not finished."""

    config: dict[str, Any]
    name: str = ""
    finished: bool = True
    model: Model | None = None
    summary: dict[str, Any] = field(default_factory=dict)  # facts of the stages: kernels, train, score
    manifest: dict[str, Any] = field(default_factory=dict)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    predictions: Predictions | None = None
    timeline: dict[str, Any] = field(default_factory=dict)
    tuning: Any = None  # what tuning.json holds
    tuning_drawing: str = ""  # and tuning.svg

    @property
    def score(self) -> dict[str, Any]:
        return dict(self.summary.get("score", {}))

    @property
    def tol(self) -> float:
        return float(self.config["solve"]["tol"])


def noun(model: Model, count: int = 1) -> str:
    """'class', 'labels' ...: what the outputs of a model are."""
    return NOUNS.get(model.task, ("class", "classes"))[count != 1]


def metric_title(name: str) -> str:
    """The name of a metric for people; a file may name one that this version does not know."""
    return METRICS[name].title if name in METRICS else name.replace("_", " ")


def metric_value(name: str, value: float | None) -> Figures:
    """The value of a metric as it is printed."""
    return Figures(METRICS[name].shown(value) if name in METRICS else number(value))
