"""dmkl predict and dmkl evaluate: a model on new data."""

from __future__ import annotations

import time
from pathlib import Path

import click

from dmkl.cli.console import Console, count, metric_text, output_options

workers_option = click.option("--workers", type=click.IntRange(1), metavar="N", help="Number of threads.")


@click.command()
@click.argument("run", type=click.Path())
@click.argument("data", type=click.Path())
@click.option(
    "-o", "--output", type=click.Path(), required=True, metavar="FILE", help="A new .npz, .csv or .parquet file."
)
@click.option("--proba", is_flag=True, help="Add probabilities, calibrated on the held-out samples of the training.")
@click.option("--explain", is_flag=True, help="Add what each kernel contributes to the score of the predicted class.")
@workers_option
@output_options
def predict(
    run: str, data: str, output: str, proba: bool, explain: bool, workers: int | None, console: Console
) -> None:
    """Predict the labels or targets of DATA with the model of RUN, a run directory or a model file in one.

    Samples are read, predicted and written in batches: memory does not grow with their number, except for .npz.
    """
    from dmkl.run.predict import Predictor, check_output, write_predictions
    from dmkl.runtime import Local

    path = Path(output)
    check_output(path)
    started = time.perf_counter()
    predictor = Predictor.open(run, probabilities=proba, explain=explain)
    n = write_predictions(path, predictor, predictor.batches(data, Local(workers or 0)))
    seconds = time.perf_counter() - started
    calibrated = predictor.calibration.samples if predictor.calibration else None
    facts = [f"probabilities calibrated on {count(calibrated, 'held-out sample')}"] if calibrated else []
    console.line("predict", count(n, "sample"), *facts, str(path), seconds=seconds)
    console.result({"n": n, "calibrated_on": calibrated, "output": str(path), "seconds": seconds})


@click.command()
@click.argument("run", type=click.Path())
@click.argument("data", type=click.Path())
@workers_option
@output_options
def evaluate(run: str, data: str, workers: int | None, console: Console) -> None:
    """Score the model of RUN on DATA, which must have labels."""
    from dmkl.model import measure, per_class
    from dmkl.run.predict import Predictor
    from dmkl.runtime import Local

    predictor = Predictor.open(run)
    model, samples = predictor.model, predictor.labelled(data)
    assert samples.labels is not None
    scores = model.decision(samples, Local(workers or 0))
    metrics = measure(scores, samples.labels)
    console.line("score", count(samples.n, "sample"), *(metric_text(name, value) for name, value in metrics.items()))
    console.result({"n": samples.n, "metrics": metrics, "per_class": per_class(model, scores, samples.labels)})
