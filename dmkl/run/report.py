"""The report of a run directory, finished or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dmkl._util.files import read_json_if_any
from dmkl._util.types import StrPath, Table
from dmkl.config import parse_config
from dmkl.data import load_split
from dmkl.errors import ConfigError, DataError, OutputError
from dmkl.model import Model, Predictions, load_model, load_predictions, measure, per_class
from dmkl.model.predictions import explain
from dmkl.report import Contents, write_report
from dmkl.run.directory import HeldOutRecord, RunDirectory, trusting
from dmkl.runtime import Runtime

SCORE_TOLERANCE = 1e-3  # relative difference between scores computed again and those kept as float32


def read_run(run: RunDirectory) -> Contents:
    """The contents of a report, as far as the run has come."""
    config = read_json_if_any(run.config)
    if not config:
        raise OutputError(f"{run.path} is not a run directory", "give a directory that dmkl train wrote")
    summary = read_json_if_any(run.scores)
    model = load_model(run.model) if run.model.exists() else None
    kept = load_predictions(run.predictions, model) if model and run.predictions.exists() else None
    tuning = read_json_if_any(run.tuned)
    if model and kept and "score" not in summary:
        summary["score"] = score_record(model, kept, tuning.get("metric", ""))
    drawing = run.path / "tuning.svg"
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
        tuning=tuning,
        tuning_drawing=drawing.read_text(encoding="utf-8") if drawing.is_file() else "",
    )


def write_run_report(run: RunDirectory, path: StrPath, runtime: Runtime, explained: Sequence[int] = ()) -> Contents:
    """Write the report of a run as one HTML file.

    Parameters
    ----------
    run : RunDirectory
        A run, finished or not.
    path : Path or str
        The file to write or replace.
    runtime : Runtime
        Where predictions are computed again if samples are to be explained.
    explained : sequence of int, optional
        Held-out samples, counted from 0, to explain in place of those chosen in training.

    Returns
    -------
    Contents
        What the report was made of.
    """
    with trusting(run):
        contents = read_run(run)
        if explained:
            contents = replace(contents, predictions=_explained(contents, explained, runtime))
        write_report(Path(path), contents)
    return contents


def score_record(model: Model, kept: Predictions, metric: str = "") -> HeldOutRecord:
    """The metrics of the held-out predictions, `metric` or else the usual one of the task first."""
    return {
        "n": len(kept.truth),
        "metrics": measure(kept.scores, kept.truth, metric),
        "per_class": per_class(model, kept.scores, kept.truth),
    }


def rounds(run: RunDirectory) -> list[Table]:
    """Finished rounds with the seconds since the start of the run, summed over all times it was continued.

    A round that a killed run repeated is taken from its repetition.
    """
    found: dict[int, Table] = {}
    before, last = 0.0, 0.0
    for event in run.rounds():
        before += last if event["seconds"] < last else 0.0
        last = event["seconds"]
        found[event["round"]] = {**event, "seconds": before + last}
    return [found[number] for number in sorted(found)]


def _explained(contents: Contents, which: Sequence[int], runtime: Runtime) -> Predictions:
    """The predictions with explanations of these held-out samples, which are read from the data again."""
    model, kept = contents.model, contents.predictions
    if model is None or kept is None:
        raise ConfigError(f"{contents.name} has no held-out samples to explain", "train with [data] test or split")
    for number in which:
        if not 0 <= number < len(kept.truth):
            raise ConfigError(
                f"there is no held-out sample {number}", f"held-out samples are numbered 0 to {len(kept.truth) - 1}"
            )
    config = parse_config(contents.config)
    _, test = load_split(config.data, config.views, config.solve.seed)
    if test is None or test.n != len(kept.truth):
        raise DataError(f"the data of {contents.name} have changed")
    index = np.array(which)
    again = model.decision(test.take(index), runtime)
    largest = float(np.abs(kept.scores).max())
    if not np.allclose(again, kept.scores[index], rtol=SCORE_TOLERANCE, atol=SCORE_TOLERANCE * largest):
        raise DataError(f"the data of {contents.name} have changed: the held-out samples now have different scores")
    return replace(kept, explained=explain(model, test, kept.scores, which, runtime))
