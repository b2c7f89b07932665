"""Files of predictions: `.csv` and `.parquet` are written batch after batch, `.npz` at the end."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dmkl._util.files import replacing, writing
from dmkl._util.registry import Registry
from dmkl.errors import ConfigError, OutputError
from dmkl.run.predicting import Arrays, Predictor

Writer = Callable[[Path, Predictor, Iterator[Arrays]], int]


def check_output(path: Path) -> None:
    """Refuse, before any work, a file that exists or that nobody could write."""
    if path.suffix not in WRITERS:
        raise ConfigError(f"cannot write '{path.suffix}' files", f"name a {', '.join(WRITERS)} file")
    if path.exists():
        raise OutputError(f"{path} exists", "choose another -o or remove it")
    if path.suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401 - only to see that it is there
        except ImportError:
            raise ConfigError(f"writing {path} needs pyarrow", "pip install 'dmkl[parquet]'") from None


def write_predictions(path: Path, predictor: Predictor, batches: Iterator[Arrays]) -> int:
    """Write all batches, or leave no file; how many samples there were."""
    with writing(path), replacing(path) as temporary:
        return WRITERS[path.suffix](temporary, predictor, batches)


def _csv(path: Path, predictor: Predictor, batches: Iterator[Arrays]) -> int:
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


def _parquet(path: Path, predictor: Predictor, batches: Iterator[Arrays]) -> int:
    import pyarrow
    import pyarrow.parquet

    n, writer = 0, None
    facts = {"calibrated_on": str(predictor.calibration.samples)} if predictor.calibration else None
    try:
        for columns in map(predictor.columns, batches):
            table = pyarrow.table(columns).replace_schema_metadata(facts)
            writer = writer or pyarrow.parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
            n += table.num_rows
    finally:
        if writer is not None:
            writer.close()
    return n


def _npz(path: Path, predictor: Predictor, batches: Iterator[Arrays]) -> int:
    parts = list(batches)
    arrays: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
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
WRITERS.register(".npz", _npz)
WRITERS.register(".csv", _csv)
WRITERS.register(".parquet", _parquet)
