"""Predictions of a run's model for new samples, computed and written in batches.

`.csv` and `.parquet` files are written batch by batch; the arrays of a `.npz` file are collected first.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dmkl._util.files import read_json, replacing, writing
from dmkl._util.registry import Registry
from dmkl._util.types import Array, Samples, StrPath
from dmkl.config import Config, DataConfig, parse_config
from dmkl.data import Dataset, Labels, load_batches, load_dataset
from dmkl.errors import ConfigError, OutputError
from dmkl.model import Calibration, Model, load_calibration, load_model
from dmkl.model.predictions import contributions, explained_names
from dmkl.run.directory import RunDirectory
from dmkl.runtime import Runtime

BATCH_BYTES = 64e6  # features of one batch
COLUMN_PREFIXES = {"contribution": "kernel"}  # of a table's columns, where it is not the name of the array

Arrays = dict[str, Array]


@dataclass(frozen=True)
class Predictor:
    """A model, the configuration its run read data with, and which outputs are wanted.

    Attributes
    ----------
    model : Model
        The model of a run.
    config : Config
        The configuration of that run.
    calibration : Calibration or None
        Turns scores into probabilities, if they are wanted.
    explain : bool
        Whether the contribution of every kernel is wanted.
    """

    model: Model
    config: Config
    calibration: Calibration | None = None
    explain: bool = False

    @classmethod
    def open(cls, path: StrPath, *, probabilities: bool = False, explain: bool = False) -> Predictor:
        """Open the model of a run directory, or a model file inside one."""
        path = Path(path)
        run = RunDirectory(path if path.is_dir() else path.parent)
        model = load_model(run.model if path.is_dir() else path)
        if not run.config.is_file():
            raise ConfigError(f"{run.config} is missing", "keep the model in its run directory")
        if probabilities and model.task == "regression":
            raise ConfigError("a regression has no probabilities", "leave out --proba")
        calibration = load_calibration(run.calibration, model.task, len(model.outputs)) if probabilities else None
        return cls(model, parse_config(read_json(run.config)), calibration, explain)

    def labelled(self, path: StrPath) -> Dataset:
        """Read the samples of a file with their labels, encoded as in training."""
        like = Labels(self.model.task, np.empty(0, dtype=np.int64), self.model.classes)
        return load_dataset(self._data(path), self.config.views, like=like)

    def batches(self, path: StrPath, runtime: Runtime) -> Iterator[Arrays]:
        """Predict the samples of a file in their order; memory does not grow with their number."""
        needed = list(self.model.bank.view_kinds)
        width = 8 * sum(self.model.about["widths"].values())  # bytes of a sample
        rows = max(1, min(self.model.batch_rows * runtime.workers, int(BATCH_BYTES / max(1, width))))
        for samples in load_batches(self._data(path), self.config.views, needed, rows):
            yield self.predict(samples, runtime)

    def predict(self, samples: Dataset, runtime: Runtime) -> Arrays:
        """Predict samples.

        Returns
        -------
        dict of arrays, one row for each sample
            'prediction' (n,) of a regression; otherwise 'label' (n,), or (n, classes) for several labels a sample, and
            'score' (n, outputs). If wanted also 'probability' (n, classes), and 'explained' (n,), the class whose score
            is explained, 'contribution' (n, kernels with weight) and 'intercept' (n,), which add up to its score.
        """
        model = self.model
        scores = model.decision(samples, runtime)
        labels = model.predict(scores)
        if model.task == "regression":
            arrays: Arrays = {"prediction": labels.values}
        else:
            names = np.array(model.classes)
            arrays = {"label": labels.values if model.task == "multilabel" else names[labels.values], "score": scores}
        if self.calibration:
            arrays["probability"] = self.calibration.probabilities(scores)
        if self.explain:
            added, intercept = contributions(model, samples, scores, runtime)
            arrays["explained"] = np.array(explained_names(model, scores))
            arrays |= {"contribution": added[:, self._active], "intercept": intercept}
        return arrays

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """The names of the columns of each matrix: classes, outputs or kernels."""
        model = self.model
        names = {"label": model.classes, "score": model.outputs, "probability": model.classes}
        return names | {"contribution": tuple(model.bank.kernels[a].name for a in self._active)}

    def columns(self, arrays: Arrays) -> Arrays:
        """The arrays as columns of a table; a matrix becomes one column for each of its names."""
        table: Arrays = {}
        for name, values in arrays.items():
            if values.ndim == 2:
                prefix = COLUMN_PREFIXES.get(name, name)
                for column_name, column in zip(self.names[name], values.T, strict=True):
                    table[f"{prefix} {column_name}"] = column
            else:
                table[name] = values
        return table

    @property
    def _active(self) -> Samples:
        """Numbers of the kernels with weight."""
        return np.flatnonzero(np.abs(self.model.weights).max(axis=0))

    def _data(self, path: StrPath) -> DataConfig:
        return replace(self.config.data, path=(os.fspath(path),), example="", split="")


Writer = Callable[[Path, Predictor, Iterator[Arrays]], int]


def check_output(path: Path) -> None:
    """Refuse, before any work, an output file that exists or that cannot be written."""
    if path.suffix not in WRITERS:
        raise ConfigError(
            f"predictions cannot be written to a '{path.suffix}' file", f"use one of {', '.join(WRITERS)}"
        )
    if path.exists():
        raise OutputError(f"{path} exists", "choose another -o or remove it")
    if path.suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401 - only to see whether it is installed
        except ImportError:
            raise ConfigError(f"writing {path} needs pyarrow", "pip install 'dmkl[parquet]'") from None


def write_predictions(path: Path, predictor: Predictor, batches: Iterator[Arrays]) -> int:
    """Write all batches to a new file, or leave no file; returns the number of samples."""
    with writing(path), replacing(path) as temporary:
        return WRITERS[path.suffix](temporary, predictor, batches)


def _write_csv(path: Path, predictor: Predictor, batches: Iterator[Arrays]) -> int:
    n = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        for columns in map(predictor.columns, batches):
            if not n:
                writer.writerow(columns)
            rows = list(zip(*(values.tolist() for values in columns.values()), strict=True))
            writer.writerows(rows)
            n += len(rows)
    return n


def _write_parquet(path: Path, predictor: Predictor, batches: Iterator[Arrays]) -> int:
    import pyarrow
    import pyarrow.parquet

    n, writer = 0, None
    metadata = {"calibrated_on": str(predictor.calibration.samples)} if predictor.calibration else None
    try:
        for columns in map(predictor.columns, batches):
            table = pyarrow.table(columns).replace_schema_metadata(metadata)
            writer = writer or pyarrow.parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
            n += table.num_rows
    finally:
        if writer is not None:
            writer.close()
    return n


def _write_npz(path: Path, predictor: Predictor, batches: Iterator[Arrays]) -> int:
    parts = list(batches)
    arrays: Arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    n = len(next(iter(arrays.values())))
    if "score" in arrays:
        arrays["classes"] = np.array(predictor.names["score"])
    if "probability" in arrays:
        assert predictor.calibration is not None
        arrays["probability_classes"] = np.array(predictor.names["probability"])
        arrays["calibrated_on"] = np.array(predictor.calibration.samples)
    if "contribution" in arrays:
        arrays["kernels"] = np.array(predictor.names["contribution"])
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    path.write_bytes(buffer.getvalue())
    return n


WRITERS: Registry[Writer] = Registry("file suffix of predictions")
WRITERS.register(".npz", _write_npz)
WRITERS.register(".csv", _write_csv)
WRITERS.register(".parquet", _write_parquet)
