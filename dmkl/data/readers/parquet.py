"""Apache Parquet tables, one array a column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmkl.data.readers.common import Arrays
from dmkl.errors import DataError
from dmkl.memory import require_free

SMALLEST = 8  # bytes a cell takes at least, as numbers or text of ours; encoded, a million may take ten


def read_parquet(path: Path) -> Arrays:
    """Columns of numbers, truth values and text; dates, lists and other types are passed over."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"reading {path} needs pyarrow", "pip install 'dmkl[parquet]'") from None
    with path.open("rb") as file:
        content = pyarrow.parquet.ParquetFile(file)
        names = [str(name) for name in content.schema_arrow.names]
        if len(set(names)) != len(names):
            raise DataError(f"{path} has two columns of the same name", "rename one of them")
        require_free(content.metadata.num_rows * len(names) * SMALLEST, str(path))
        table = content.read()
    if table.num_rows == 0:
        raise DataError(f"{path} has no rows", "write or download it again")
    arrays: Arrays = {}
    for name, column in zip(names, table.columns, strict=True):
        array = _column(path, name, column)
        if array is not None:
            arrays[name] = array
    return arrays


def _column(path: Path, name: str, column: Any) -> NDArray[Any] | None:
    from pyarrow import types

    if types.is_dictionary(column.type):  # how pandas writes categories
        column = column.cast(column.type.value_type)
    kind = column.type
    text = types.is_string(kind) or types.is_large_string(kind)
    decimal = types.is_decimal(kind)
    if not (text or decimal or types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        return None
    if column.null_count:
        row = column.is_null().to_pylist().index(True) + 1
        raise DataError(f"{path}: row {row} has an empty cell in column '{name}'", "fill it or drop the row")
    values = column.to_numpy()
    if text:
        return np.asarray(values, dtype=np.str_)
    return np.asarray(values, dtype=np.float64) if decimal else np.asarray(values)
