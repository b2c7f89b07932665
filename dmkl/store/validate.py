"""Reading groups that anybody may have written: a claim is compared with the bytes that are there, before memory is
taken for it, and only plain numbers in the one encoding dmkl writes are decoded. Nothing in a file is ever run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BytesCodec, Crc32cCodec, Endian, ShardingCodec
from zarr.storage import LocalStore, ZipStore

from dmkl.errors import StoreError, one_line
from dmkl.store.format import CHECKSUM, read_checked

PLAIN = (BytesCodec, Crc32cCodec)


def open_group(path: Path, what: str) -> zarr.Group:
    """An existing group, read and write as the file system allows."""
    if not (path / "zarr.json").is_file():
        raise StoreError(f"no {what} at {path}")
    try:
        return zarr.open_group(path, mode="r+", zarr_format=3, use_consolidated=False)
    except Exception as error:  # Zarr's parsers fail in every possible way on damaged files
        raise StoreError(f"{path} is not a readable {what} ({one_line(error)})") from error


def read_header(group: zarr.Group, kind: str, schema: int, where: str) -> dict[str, Any]:
    """The attributes dmkl wrote, after checking that this is the right kind of file of a known version."""
    header = dict(group.attrs).get("dmkl")
    if not isinstance(header, dict) or header.get("kind") != kind:
        raise StoreError(f"{where} is not a dmkl {kind}")
    if header.get("schema") != schema:
        raise StoreError(
            f"{where} has schema {header.get('schema')}, this dmkl reads schema {schema}",
            "build it again with this version",
        )
    return header


def array_of(group: zarr.Group, name: str, *, kinds: str = "biuf") -> zarr.Array[Any]:
    """An array as `create_array` makes them, opened and not yet read; `kinds` are those of its dtype."""
    try:
        if isinstance(group.store, LocalStore):
            _require_file(group.store.root / group.path / name / "zarr.json")
        array = group[name]
    except Exception as error:
        raise StoreError(f"array '{name}' of {group.store} cannot be opened ({one_line(error)})") from error
    if not isinstance(array, zarr.Array) or array.dtype.kind not in kinds or not _is_plain(array):
        raise StoreError(f"array '{name}' of {group.store} is not one that dmkl wrote")
    return array


def get(array: Any, selection: tuple[slice, ...] = ()) -> NDArray[Any]:
    """Values of an array, of a span in its first dimensions; damage and chunks that are gone are said with its name."""
    try:
        require_chunks(array, selection)
        touched = list(itertools.islice(_keys(array, selection), 2))
        if len(touched) == 1 and _is_a_file_of_values(array):
            return _part_of_chunk(array, touched[0], selection)
        return np.asarray(array[selection or ...])
    except Exception as error:
        raise StoreError(f"array '{array.name}' of {array.store} is damaged ({one_line(error)})") from error


def require_chunks(array: zarr.Array[Any], selection: tuple[slice, ...]) -> None:
    """ValueError or OSError unless every chunk of a selection is there with the size it has to have.

    It stops at the first that is not, so that a claim of a billion chunks costs nothing.
    """
    expected = math.prod(array.chunks) * array.dtype.itemsize + CHECKSUM
    for key in _keys(array, selection):
        found = _size(array, key)
        if found != expected:
            raise ValueError(f"chunk {key} has {found:,} bytes, not {expected:,}")


def _is_a_file_of_values(array: Any) -> bool:
    """Whether each chunk is a file of little-endian values and their checksum."""
    return (
        isinstance(array.store, LocalStore) and array.shards is None and array.metadata.codecs[0].endian != Endian.big
    )


def _part_of_chunk(array: Any, key: str, selection: tuple[slice, ...]) -> NDArray[Any]:
    """The part of a selection's only chunk that it asks for: 0.3 ms for a block of samples where Zarr takes 3."""
    values = np.empty(array.chunks, array.dtype)
    with (array.store.root / key).open("rb", buffering=0) as file:
        read_checked(file, values, 0)
    inside = []
    for chosen, length, side in zip(selection, array.shape, array.chunks, strict=False):
        start, stop, _ = chosen.indices(length)
        inside.append(slice(start % side, start % side + stop - start))
    rest = [slice(length) for length in array.shape[len(selection) :]]
    return np.asarray(values[(*inside, *rest)], order="C")


def _is_plain(array: zarr.Array[Any]) -> bool:
    codecs: Any = getattr(array.metadata, "codecs", ())
    if len(codecs) == 1 and isinstance(codecs[0], ShardingCodec):
        inner = codecs[0]
        return tuple(map(type, inner.codecs)) == PLAIN == tuple(map(type, inner.index_codecs))
    return tuple(map(type, codecs)) == PLAIN


def _keys(array: zarr.Array[Any], selection: tuple[slice, ...]) -> Iterator[str]:
    """Names of the chunks that a selection touches."""
    whole = (*selection, *(slice(None) for _ in array.shape[len(selection) :]))
    spans = []
    for chosen, length, side in zip(whole, array.shape, array.chunks, strict=True):
        start, stop, _ = chosen.indices(length)
        spans.append((start // side, max(-(-stop // side), start // side)))
    for number in range(math.prod(stop - start for start, stop in spans)):
        place = []
        for start, stop in reversed(spans):
            number, here = divmod(number, stop - start)
            place.append(start + here)
        key = array.metadata.encode_chunk_key(tuple(reversed(place)))
        yield f"{array.path}/{key}"


def _size(array: zarr.Array[Any], key: str) -> int:
    if isinstance(array.store, ZipStore):
        return array.store._zf.getinfo(key).file_size
    assert isinstance(array.store, LocalStore)
    path = array.store.root / key
    if path.resolve() != array.store.root.resolve() / key:  # one file could stand for a thousand chunks
        raise ValueError(f"{path} is a link")
    return _require_file(path)


def _require_file(path: Path) -> int:
    """The size of a regular file: a pipe would be waited for, a device has no end."""
    if not path.is_file():
        raise ValueError(f"{path} is missing or no file")
    return path.stat().st_size
