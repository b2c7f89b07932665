"""Small atomic files, and system errors in the words of the person who meets them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dmkl.errors import OutputError, ResourceError, StoreError, one_line


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a full disk or a forbidden folder met while writing `path` into one clear refusal."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ResourceError(
                f"the disk is full: cannot write {path}", "free some space and run the same command again"
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise OutputError(f"cannot write {path}: {os.strerror(error.errno)}") from error
        raise OutputError(f"cannot write {path}: {error}") from error


def make_folder(path: Path) -> None:
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write that then takes the place of `path`, as a whole or not at all, also when power is lost."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield temporary
        _synchronise(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _synchronise(path.parent)


def _synchronise(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` as a whole or not at all."""
    with writing(path), replacing(path) as temporary:
        temporary.write_bytes(data)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object that `write_json` wrote, or anybody."""
    if not path.is_file():  # a pipe would be waited for
        raise StoreError(f"{path} is missing or no file")
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({one_line(error)})") from error
    if not isinstance(value, dict):
        raise StoreError(f"{path} is damaged (it holds no object)")
    return value


def read_json_if_any(path: Path) -> dict[str, Any]:
    """The same; nothing if it is not there, damaged or being written."""
    try:
        return read_json(path)
    except StoreError:
        return {}


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())
