"""Safe reading of Zarr groups that anybody may have written.

What a file claims of itself is compared with the bytes on disk before memory is allocated for it. Only plain numbers in
the one encoding that dmkl writes are decoded, and nothing in a file is ever executed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, Endian, ShardingCodec
from zarr.storage import LocalStore, ZipStore

from dmkl._util.types import Array, Table
from dmkl.errors import StoreError, one_line
from dmkl.store.format import CHECKSUM, ZarrArray, read_checked, verify
from dmkl.store.place import Folder, ObjectsOfZarr, Place, UnreachableStore

PLAIN = (BytesCodec, Crc32cCodec)


def open_group(place: Place, what: str) -> zarr.Group:
    """Open an existing group; the file system, or the object store, decides whether it can be written to."""
    if not place.has_group():
        raise StoreError(f"no {what} at {place}")
    try:
        return zarr.open_group(place.zarr, mode="r+", zarr_format=3, use_consolidated=False)
    except UnreachableStore:
        raise
    except Exception as error:  # Zarr's parsers fail in every possible way on damaged files
        raise StoreError(f"{place} is not a readable {what} ({one_line(error)})") from error


def read_header(group: zarr.Group, kind: str, schema: int, where: str) -> Table:
    """The attributes that dmkl wrote, after a check that this is the right kind of file, of a known version."""
    header = dict(group.attrs).get("dmkl")
    if not isinstance(header, dict) or header.get("kind") != kind:
        raise StoreError(f"{where} is not a dmkl {kind}")
    if header.get("schema") != schema:
        raise StoreError(
            f"{where} has schema {header.get('schema')}, this dmkl reads schema {schema}",
            "build it again with this version",
        )
    return header


def array_of(group: zarr.Group, name: str, *, kinds: str = "biuf") -> ZarrArray:
    """An array as `create_array` makes them, opened and not yet read; `kinds` are those of its dtype."""
    try:
        if isinstance(group.store, LocalStore):
            Folder(group.store.root).size(f"{group.path}/{name}/zarr.json".lstrip("/"))
        array = group[name]
    except UnreachableStore:
        raise
    except Exception as error:
        raise StoreError(f"array '{name}' of {group.store} cannot be opened ({one_line(error)})") from error
    if not isinstance(array, zarr.Array) or array.dtype.kind not in kinds or not _is_plain(array):
        raise StoreError(f"array '{name}' of {group.store} is not one that dmkl wrote")
    return array


def get(array: ZarrArray, selection: tuple[slice, ...] = ()) -> Array:
    """The values of an array, or of a span in its first dimensions. StoreError names an array that is damaged or lacks
    chunks."""
    try:
        touched = list(itertools.islice(_keys(array, selection), 2))
        if len(touched) == 1 and _is_a_file_of_values(array):
            return _part_of_chunk(array, touched[0], selection)
        require_chunks(array, selection)
        return np.asarray(array[selection or ...])
    except UnreachableStore:
        raise
    except Exception as error:
        raise StoreError(f"array '{array.name}' of {array.store} is damaged ({one_line(error)})") from error


def require_chunks(array: ZarrArray, selection: tuple[slice, ...]) -> None:
    """Raise ValueError or OSError unless every chunk of a selection exists and has the right size.

    It stops at the first chunk that does not, so that a claim of a billion chunks costs nothing.
    """
    expected = _chunk_bytes(array)
    sizes = array.store.place.sizes(array.path) if isinstance(array.store, ObjectsOfZarr) else None  # one request
    for key in _keys(array, selection):
        found = _size(array, key) if sizes is None else sizes.get(key.removeprefix(f"{array.path}/"), 0)
        if found != expected:
            raise ValueError(f"chunk {key} has {found:,} bytes, not {expected:,}")


def _chunk_bytes(array: ZarrArray) -> int:
    return math.prod(array.chunks) * array.dtype.itemsize + CHECKSUM


def _is_a_file_of_values(array: ZarrArray) -> bool:
    """Whether each chunk is a file of little-endian values and their checksum."""
    first = _codecs(array)[0]
    little = isinstance(first, BytesCodec) and first.endian != Endian.big
    return isinstance(array.store, LocalStore | ObjectsOfZarr) and array.shards is None and little


def _part_of_chunk(array: ZarrArray, key: str, selection: tuple[slice, ...]) -> Array:
    """The values of a selection that lies in one chunk: 0.3 ms for a block of samples, for which Zarr takes 3 ms. The
    chunk must have the right size."""
    values = _chunk_of_object(array, key) if isinstance(array.store, ObjectsOfZarr) else _chunk_of_file(array, key)
    inside = []
    for chosen, length, side in zip(selection, array.shape, array.chunks, strict=False):
        start, stop, _ = chosen.indices(length)
        inside.append(slice(start % side, start % side + stop - start))
    rest = [slice(length) for length in array.shape[len(selection) :]]
    return np.asarray(values[(*inside, *rest)], order="C")


def _chunk_of_file(array: ZarrArray, key: str) -> Array:
    assert isinstance(array.store, LocalStore)
    found, expected = _size(array, key), _chunk_bytes(array)
    if found != expected:
        raise ValueError(f"chunk {key} has {found:,} bytes, not {expected:,}")
    values = np.empty(array.chunks, array.dtype)
    with (array.store.root / key).open("rb", buffering=0) as file:
        read_checked(file, values, 0)
    return values


def _chunk_of_object(array: ZarrArray, key: str) -> Array:
    assert isinstance(array.store, ObjectsOfZarr)
    place = array.store.place
    raw = np.frombuffer(place.read_from(key, 0, _chunk_bytes(array)), np.uint8)
    verify(raw, place.named(key))
    return raw[:-CHECKSUM].view(array.dtype).reshape(array.chunks)


def _codecs(array: ZarrArray) -> tuple[object, ...]:
    return tuple(getattr(array.metadata, "codecs", ()))


def _is_plain(array: ZarrArray) -> bool:
    codecs = _codecs(array)
    if len(codecs) == 1 and isinstance(codecs[0], ShardingCodec):
        inner = codecs[0]
        return tuple(map(type, inner.codecs)) == PLAIN == tuple(map(type, inner.index_codecs))
    return tuple(map(type, codecs)) == PLAIN


def _keys(array: ZarrArray, selection: tuple[slice, ...]) -> Iterator[str]:
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


def _size(array: ZarrArray, key: str) -> int:
    if isinstance(array.store, ZipStore):
        return array.store._zf.getinfo(key).file_size
    assert isinstance(array.store, LocalStore)
    return Folder(array.store.root).size(key)
