"""dmkl predict and dmkl evaluate: a model on new data."""

from __future__ import annotations

import time
from pathlib import Path

import click

from dmkl.cli import options
from dmkl.cli.console import Console, count, figure


@click.command()
@click.argument("run", type=click.Path())
@click.argument("data", type=click.Path())
@click.option(
    "-o", "--output", type=click.Path(), required=True, metavar="FILE", help="A new .npz, .csv or .parquet file."
)
@click.option("--proba", is_flag=True, help="Also probabilities, calibrated on the samples held out in training.")
@click.option("--explain", is_flag=True, help="Also what each kernel adds to the score of the predicted class.")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Threads.")
@options.output
def predict(
    run: str,
    data: str,
    output: str,
    proba: bool,
    explain: bool,
    workers: int | None,
    as_json: bool,
    verbose: int,
    quiet: bool,
) -> None:
    """Predict the labels or targets of DATA with the model of RUN (a run directory or a model file).

    Samples are read, predicted and written in batches: memory does not grow with their number, except for .npz.
    """
    from dmkl.run.outputs import check_output, write_predictions
    from dmkl.run.predicting import Predictor
    from dmkl.runtime import Local

    console = Console(as_json=as_json, verbosity=options.verbosity(verbose, quiet))
    path = Path(output)
    check_output(path)
    started = time.perf_counter()
    predictor = Predictor.open(Path(run), probabilities=proba, explain=explain)
    n = write_predictions(path, predictor, predictor.batches(data, Local(workers or 0)))
    seconds = time.perf_counter() - started
    calibrated = predictor.calibration.samples if predictor.calibration else None
    words = [f"probabilities calibrated on {count(calibrated, 'held-out sample')}"] if calibrated else []
    console.line("predict", count(n, "sample"), *words, str(path), seconds=seconds)
    console.result({"n": n, "calibrated_on": calibrated, "output": str(path), "seconds": seconds})


@click.command()
@click.argument("run", type=click.Path())
@click.argument("data", type=click.Path())
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Threads.")
@options.output
def evaluate(run: str, data: str, workers: int | None, as_json: bool, verbose: int, quiet: bool) -> None:
    """Score the model of RUN on DATA, which has labels."""
    from dmkl.model import measure, per_class
    from dmkl.run.predicting import Predictor
    from dmkl.runtime import Local

    console = Console(as_json=as_json, verbosity=options.verbosity(verbose, quiet))
    predictor = Predictor.open(Path(run))
    model, samples = predictor.model, predictor.labelled(data)
    assert samples.labels is not None
    scores = model.decision(samples, Local(workers or 0))
    metrics = measure(scores, samples.labels)
    console.line("score", count(samples.n, "sample"), *(figure(name, value) for name, value in metrics.items()))
    console.result({"n": samples.n, "metrics": metrics, "per_class": per_class(model, scores, samples.labels)})
