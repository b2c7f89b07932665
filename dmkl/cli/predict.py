"""dmkl predict and dmkl evaluate: a model on new data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dmkl.cli import options
from dmkl.cli.console import Console, count, figure
from dmkl.errors import ConfigError, OutputError

if TYPE_CHECKING:
    from dmkl.data import Dataset, Labels
    from dmkl.model import Model


@click.command()
@click.argument("run", type=click.Path())
@click.argument("data", type=click.Path())
@click.option("-o", "--output", type=click.Path(), required=True, metavar="FILE", help="A new .npz or .csv file.")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Threads.")
@options.output
def predict(run: str, data: str, output: str, workers: int | None, as_json: bool, verbose: int, quiet: bool) -> None:
    """Predict the labels or targets of DATA with the model of RUN (a run directory or a model file)."""
    from dmkl.runtime import Local

    console = Console(as_json=as_json, verbosity=options.verbosity(verbose, quiet))
    path = Path(output)
    if path.suffix not in (".npz", ".csv"):
        raise ConfigError(f"cannot write '{path.suffix}' files", "name a .npz or .csv file")
    if path.exists():
        raise OutputError(f"{path} exists", "choose another -o or remove it")
    started = time.perf_counter()
    model, samples = _open(run, data, labels=False)
    scores = model.decision(samples, Local(workers or 0))
    _write(path, model, model.predict(scores), scores)
    seconds = time.perf_counter() - started
    console.line("predict", count(samples.n, "sample"), str(path), seconds=seconds)
    console.result({"n": samples.n, "output": str(path), "seconds": seconds})


@click.command()
@click.argument("run", type=click.Path())
@click.argument("data", type=click.Path())
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Threads.")
@options.output
def evaluate(run: str, data: str, workers: int | None, as_json: bool, verbose: int, quiet: bool) -> None:
    """Score the model of RUN on DATA, which has labels."""
    from dmkl.model import per_class, score
    from dmkl.runtime import Local

    console = Console(as_json=as_json, verbosity=options.verbosity(verbose, quiet))
    model, samples = _open(run, data, labels=True)
    assert samples.labels is not None
    scores = model.decision(samples, Local(workers or 0))
    metrics = score(model, scores, samples.labels)
    console.line("score", count(samples.n, "sample"), *(figure(name, value) for name, value in metrics.items()))
    console.result({"n": samples.n, "metrics": metrics, "per_class": per_class(model, scores, samples.labels)})


def _open(run: str, data: str, *, labels: bool) -> tuple[Model, Dataset]:
    """A model and the data to use it on, read the way its run read its own."""
    from dataclasses import replace

    from dmkl.config import parse_config
    from dmkl.data import Labels, load_dataset
    from dmkl.experiment import RunDirectory
    from dmkl.files import read_json
    from dmkl.model import load_model

    path = Path(run)
    folder = path if path.is_dir() else path.parent
    model = load_model(RunDirectory(path).model if path.is_dir() else path)
    config_file = folder / "config.json"
    if not config_file.is_file():
        raise ConfigError(f"{config_file} is missing", "keep the model in its run directory")
    config = parse_config(read_json(config_file))
    source = replace(config.data, path=(data,), example="", split="")
    learnt = Labels(model.task, _no_values(), model.classes)
    return model, load_dataset(source, config.views, labels_needed=labels, like=learnt if labels else None)


def _no_values() -> Any:
    import numpy as np

    return np.empty(0, dtype=np.int64)


def _write(path: Path, model: Model, labels: Labels, scores: Any) -> None:
    import csv
    import io

    import numpy as np

    from dmkl.files import write_atomically

    arrays = _arrays(model, labels, scores)
    if path.suffix == ".npz":
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        write_atomically(path, buffer.getvalue())
        return
    columns = dict(_columns(model, arrays))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    write_atomically(path, text.getvalue().encode())


def _arrays(model: Model, labels: Labels, scores: Any) -> dict[str, Any]:
    """What is written: labels with the scores they follow from, or the predicted targets, which are scores."""
    import numpy as np

    if model.task == "regression":
        return {"prediction": labels.values}
    predicted = labels.values if model.task == "multilabel" else np.array(model.classes)[labels.values]
    return {"label": predicted, "score": scores, "classes": np.array(model.outputs)}


def _columns(model: Model, arrays: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arrays as columns of a table; a matrix has one for each output of the model."""
    for name, values in arrays.items():
        if values.ndim == 2:
            yield from ((f"{name} {output}", values[:, k]) for k, output in enumerate(model.outputs))
        elif name != "classes":  # they are the outputs' names
            yield name, values
