"""Formats of text: tables, `.csv` and `.tsv`, with a header line and one array a column; and svmlight."""

from __future__ import annotations

import csv
import itertools
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

import numpy as np

from dmkl._util.machine import require_free
from dmkl._util.types import Array, Float64
from dmkl.data.readers import Arrays, Length, Reader, as_csr
from dmkl.errors import DataError


def _reader(delimiter: str) -> Reader:
    def read(path: Path) -> Arrays:
        return _read(path, delimiter)

    def stream(path: Path, rows: int, length: Length) -> Iterator[Arrays]:
        return _stream(path, rows, delimiter)

    return Reader(read, stream)


def _read(path: Path, delimiter: str) -> Arrays:
    """The columns of a table by name."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = _header(path, file, delimiter)
        table = _numbers(file, len(header), delimiter)
        if table is not None:
            return {name: table[:, column] for column, name in enumerate(header)}
        file.seek(0)
        next(csv.reader(file, delimiter=delimiter))
        rows = _rows(path, file, header, delimiter)
        if not rows:
            raise DataError(f"{path} has a header line but no rows", "write or download it again")
    return {name: _column([row[place] for row in rows]) for place, name in enumerate(header)}


def _stream(path: Path, rows: int, delimiter: str) -> Iterator[Arrays]:
    """The columns of consecutive rows.

    Columns that are text in the first batch stay text, also where all cells of a later batch look like numbers.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = _header(path, file, delimiter)
        text: set[str] | None = None
        done = 0
        while lines := list(itertools.islice(file, rows)):
            table = None if text else _numbers(lines, len(header), delimiter)
            if table is not None:
                count, arrays = len(table), {name: table[:, column] for column, name in enumerate(header)}
            else:
                more = itertools.chain(lines, file)  # a cell may go on in the next line
                cells = _rows(path, more, header, delimiter, before=done, most=len(lines))
                count = len(cells)
                columns = {name: [row[place] for row in cells] for place, name in enumerate(header)}
                arrays = {name: _column(column, name in (text or ())) for name, column in columns.items()}
            if not count:
                continue  # blank lines
            text = {name for name, values in arrays.items() if values.dtype.kind == "U"} if text is None else text
            done += count
            yield dict(arrays)
        if not done:
            raise DataError(f"{path} has a header line but no rows", "write or download it again")


def _header(path: Path, file: TextIO, delimiter: str) -> list[str]:
    header = [cell.strip() for cell in next(csv.reader(file, delimiter=delimiter), [])]
    if not any(header):
        raise DataError(f"{path} has no header line", "name the columns in its first line")
    if all(_is_number(cell) for cell in header):
        raise DataError(f"{path} has no header line: its first line holds numbers", "name the columns there")
    if "" in header:
        raise DataError(f"{path}: column {header.index('') + 1} has no name in the header line", "name it")
    twice = next((name for name, times in Counter(header).items() if times > 1), None)
    if twice is not None:
        raise DataError(f"{path} has two columns named '{twice}'", "rename one of them")
    if len(header) == 1 and ";" in header[0]:
        raise DataError(f"{path} seems to be separated by semicolons", "separate its columns by commas")
    return header


def _numbers(file: TextIO | list[str], columns: int, delimiter: str) -> Float64 | None:
    """A purely numeric table, parsed by numpy for its speed; None for any other or a damaged table."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # "no data" is refused below, with the file's name
            table = np.loadtxt(file, delimiter=delimiter, comments=None, quotechar='"', ndmin=2)
    except ValueError:
        return None
    return table if table.shape[0] and table.shape[1] == columns else None


def _rows(
    path: Path, lines: Iterable[str], header: list[str], delimiter: str, *, before: int = 0, most: float = math.inf
) -> list[list[str]]:
    """Rows as text; rows of another length than the header and empty cells are refused.

    `before` rows of the file have been read already. Rows that begin after the first `most` lines are left.
    """
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    rows: list[list[str]] = []
    for row in reader:
        if row:  # a blank line, mostly the last one, is no row
            line = "" if before else f" (line {reader.line_num + 1})"
            where = f"{path}: row {before + len(rows) + 1}{line}"
            if len(row) != len(header):
                raise DataError(f"{where} has {len(row)} cells, the header {len(header)}", "complete the row")
            cells = [cell.strip() for cell in row]
            if "" in cells:
                raise DataError(
                    f"{where} has an empty cell in column '{header[cells.index('')]}'", "fill it or drop the row"
                )
            rows.append(cells)
        if reader.line_num >= most:
            break
    return rows


def _column(cells: list[str], is_text: bool = False) -> Array:
    """Numbers if all cells are, else text."""
    if not is_text and all(_is_number(cell) for cell in cells):
        return np.array([float(cell) for cell in cells], dtype=np.float64)
    return np.array(cells, dtype=np.str_)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python reads 1_2 as 12; in a table it is a name


CSV = _reader(",")
TSV = _reader("\t")


def read_svmlight(path: Path) -> Arrays:
    """`X` (sparse) and `y`: a vector, or one 0/1 column a label when some line lists several."""
    from sklearn.datasets import load_svmlight_file

    several = _lists_labels(path)
    features, labels = load_svmlight_file(str(path), multilabel=several)
    if features.shape[0] == 0:
        raise DataError(f"{path} holds no samples", "expected lines like '+1 3:0.5 7:1'")
    if not several:
        return {"X": as_csr(features), "y": np.asarray(labels)}
    names = sorted({label for row in labels for label in row})
    require_free(len(labels) * len(names), f"the matrix of the labels of {path}")
    column = {label: place for place, label in enumerate(names)}
    indicator = np.zeros((len(labels), len(names)), dtype=np.uint8)
    for row, present in enumerate(labels):
        indicator[row, [column[label] for label in present]] = 1
    return {"X": as_csr(features), "y": indicator}


def _lists_labels(path: Path) -> bool:
    """Whether the label field of some line holds several labels, separated by commas."""
    with path.open("rb") as file:
        return any(b"," in line.split(b"#")[0].split(b":")[0].split(b" ")[0] for line in file)


SVMLIGHT = Reader(read_svmlight)
