"""Apache Parquet tables, one array a column."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from dmkl._util.machine import require_free
from dmkl._util.types import Array
from dmkl.data.readers import LIMITS, Arrays, Length, Reader
from dmkl.errors import DataError


def read_parquet(path: Path) -> Arrays:
    """Columns of numbers, truth values and text; dates, lists and other types are left out."""
    with path.open("rb") as file:
        return _arrays(path, _opened(path, file, sys.maxsize).read(), 0)


def stream_parquet(path: Path, rows: int, length: Length) -> Iterator[Arrays]:
    """The same columns, `rows` rows at a time."""
    import pyarrow

    with path.open("rb") as file:
        done = 0
        for batch in _opened(path, file, rows).iter_batches(batch_size=rows):
            yield _arrays(path, pyarrow.Table.from_batches([batch]), done)
            done += batch.num_rows


def _opened(path: Path, file: IO[bytes], rows: int) -> Any:
    """The open file, if `rows` of its rows fit in memory."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"reading {path} needs pyarrow", "pip install 'dmkl[parquet]'") from None
    content = pyarrow.parquet.ParquetFile(file, pre_buffer=False, buffer_size=LIMITS.parquet_buffer)
    names = [str(name) for name in content.schema_arrow.names]
    if len(set(names)) != len(names):
        raise DataError(f"{path} has two columns of the same name", "rename one of them")
    require_free(min(rows, content.metadata.num_rows) * len(names) * LIMITS.parquet_cell, str(path))
    if content.metadata.num_rows == 0:
        raise DataError(f"{path} has no rows", "write or download it again")
    return content


def _arrays(path: Path, table: Any, before: int) -> Arrays:
    arrays: Arrays = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        array = _column(path, str(name), column, before)
        if array is not None:
            arrays[str(name)] = array
    return arrays


def _column(path: Path, name: str, column: Any, before: int) -> Array | None:
    from pyarrow import types

    if types.is_dictionary(column.type):  # pandas writes categories like this
        column = column.cast(column.type.value_type)
    kind = column.type
    text = types.is_string(kind) or types.is_large_string(kind)
    decimal = types.is_decimal(kind)
    if not (text or decimal or types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        return None
    if column.null_count:
        row = before + column.is_null().to_pylist().index(True) + 1
        raise DataError(f"{path}: row {row} has an empty cell in column '{name}'", "fill it or drop the row")
    values = column.to_numpy()
    if text:
        return np.asarray(values, dtype=np.str_)
    return np.asarray(values, dtype=np.float64) if decimal else np.asarray(values)


PARQUET = Reader(read_parquet, stream_parquet)
