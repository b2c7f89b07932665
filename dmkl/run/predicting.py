"""A run's model on new samples, batch after batch: labels with their scores, probabilities and reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl._util.files import read_json
from dmkl.config import Config, parse_config
from dmkl.data import Dataset, Labels, load_batches, load_dataset
from dmkl.errors import ConfigError
from dmkl.model import Calibration, Model, load_calibration, load_model
from dmkl.model.contributions import contributions, winner_names
from dmkl.run.rundir import RunDirectory
from dmkl.runtime import Runtime

BATCH_BYTES = 64e6  # features of one batch
WORDS = {"contribution": "kernel"}  # what columns of a table are called, where an array's name would not do

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Predictor:
    """A model, how its run read data, and what is asked for."""

    model: Model
    config: Config
    calibration: Calibration | None = None
    explain: bool = False

    @classmethod
    def open(cls, path: Path, *, probabilities: bool = False, explain: bool = False) -> Predictor:
        """The model of a run directory, or a model file inside one."""
        folder = path if path.is_dir() else path.parent
        run = RunDirectory(folder)
        model = load_model(run.model if path.is_dir() else path)
        if not run.config.is_file():
            raise ConfigError(f"{run.config} is missing", "keep the model in its run directory")
        if probabilities and model.task == "regression":
            raise ConfigError("a regression has no probabilities", "leave --proba out")
        calibration = load_calibration(run.calibration, model.task, len(model.outputs)) if probabilities else None
        return cls(model, parse_config(read_json(run.config)), calibration, explain)

    def labelled(self, path: str) -> Dataset:
        """Samples with labels, encoded as in training."""
        like = Labels(self.model.task, np.empty(0, dtype=np.int64), self.model.classes)
        return load_dataset(self._source(path), self.config.views, like=like)

    def batches(self, path: str, runtime: Runtime) -> Iterator[Arrays]:
        """What is predicted of the samples of a file, in their order; memory does not grow with their number."""
        needed = list(dict.fromkeys(kernel.view for kernel in self.model.bank.kernels))
        rows = self._rows(runtime.workers)
        for samples in load_batches(self._source(path), self.config.views, needed, rows):
            yield self.predict(samples, runtime)

    def predict(self, samples: Dataset, runtime: Runtime) -> Arrays:
        """One array for each thing that was asked for, a row a sample."""
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
            arrays["explained"] = np.array(winner_names(model, scores))
            arrays |= {"contribution": added[:, self._active], "intercept": intercept}
        return arrays

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """What the columns of the matrices are about."""
        model = self.model
        names = {"label": model.classes, "score": model.outputs, "probability": model.classes}
        return names | {"contribution": tuple(model.bank.kernels[a].name for a in self._active)}

    def columns(self, arrays: Arrays) -> Arrays:
        """The arrays as columns of a table; a matrix has one for each output or kernel it is about."""
        table: Arrays = {}
        for name, values in arrays.items():
            if values.ndim == 2:
                about = zip(self.names[name], values.T, strict=True)
                table |= {f"{WORDS.get(name, name)} {which}": column for which, column in about}
            else:
                table[name] = values
        return table

    @property
    def _active(self) -> NDArray[np.int64]:
        """Kernels with weight."""
        return np.flatnonzero(np.abs(self.model.weights).max(axis=0))

    def _rows(self, workers: int) -> int:
        """Samples read at a time: enough for all workers, unless they are wide."""
        width = 8 * sum(self.model.about["widths"].values())
        batch = self.model.batch_rows
        return max(1, min(batch * workers, int(BATCH_BYTES / max(1, width))))

    def _source(self, path: str) -> Any:
        return replace(self.config.data, path=(path,), example="", split="")
