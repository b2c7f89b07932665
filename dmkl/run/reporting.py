"""The report of a run directory, also of an unfinished one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dmkl._util.files import read_json_if_any
from dmkl.config import parse_config
from dmkl.data import load_split
from dmkl.errors import ConfigError, DataError, OutputError
from dmkl.model import Model, Predictions, load_model, load_predictions, measure, per_class
from dmkl.model.predictions import open_samples
from dmkl.report import Contents, write_report
from dmkl.run.rundir import RunDirectory, trusting
from dmkl.runtime import Runtime

SAME = 1e-3  # relative difference of scores computed again, from those kept as float32


def read_run(run: RunDirectory) -> Contents:
    """As much of a run as there is."""
    config = read_json_if_any(run.config)
    if not config:
        raise OutputError(f"{run.path} is not a run directory")
    summary = read_json_if_any(run.scores)
    model = load_model(run.model) if run.model.exists() else None
    kept = load_predictions(run.predictions, model) if model and run.predictions.exists() else None
    if model and kept and "score" not in summary:
        summary["score"] = score_facts(model, kept)
    return Contents(
        config=config,
        name=str(run.path),
        finished=run.scores.exists(),
        model=model,
        summary=summary,
        manifest=read_json_if_any(run.manifest),
        rounds=rounds(run),
        predictions=kept,
        timeline=read_json_if_any(run.timeline),
        tuning=read_json_if_any(run.path / "tuning.json"),
        tuning_drawing=_text(run.path / "tuning.svg"),
    )


def report(run: RunDirectory, path: Path, runtime: Runtime, opened: Sequence[int] = ()) -> Contents:
    """Write the report of a run to `path`, with the held-out samples `opened` in place of those chosen in training."""
    with trusting(run):
        contents = read_run(run)
        if opened:
            contents = replace(contents, predictions=_opened(contents, opened, runtime))
        write_report(path, contents)
    return contents


def score_facts(model: Model, kept: Predictions) -> dict[str, Any]:
    """How good the held-out predictions are."""
    return {
        "n": len(kept.truth),
        "metrics": measure(kept.scores, kept.truth),
        "per_class": per_class(model, kept.scores, kept.truth),
    }


def rounds(run: RunDirectory) -> list[dict[str, Any]]:
    """Finished rounds, seconds counted through all turns; one that a killed run did twice counts as the second time."""
    found: dict[int, dict[str, Any]] = {}
    before, last = 0.0, 0.0
    for event in run.rounds():
        before += last if event["seconds"] < last else 0.0
        last = event["seconds"]
        found[event["round"]] = {**event, "seconds": before + last}
    return [found[number] for number in sorted(found)]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _opened(contents: Contents, which: Sequence[int], runtime: Runtime) -> Predictions:
    """The reasons for some held-out samples, which are read from the data again."""
    model, kept = contents.model, contents.predictions
    if model is None or kept is None:
        raise ConfigError(f"{contents.name} has no held-out samples to open")
    for number in which:
        if not 0 <= number < len(kept.truth):
            raise ConfigError(
                f"there is no held-out sample {number}", f"they are counted from 0 to {len(kept.truth) - 1}"
            )
    config = parse_config(contents.config)
    _, test = load_split(config.data, config.views, config.solve.seed)
    if test is None or test.n != len(kept.truth):
        raise DataError(f"the data of {contents.name} have changed")
    index = np.array(which)
    again = model.decision(test.take(index), runtime)
    if not np.allclose(again, kept.scores[index], rtol=SAME, atol=SAME * float(np.abs(kept.scores).max())):
        raise DataError(f"the data of {contents.name} have changed: the samples have other scores now")
    return replace(kept, opened=open_samples(model, test, kept.scores, which, runtime))
