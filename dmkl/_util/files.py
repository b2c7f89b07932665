"""Small atomic files, and system errors in the words of the person who meets them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dmkl.errors import DmklError, OutputError, ResourceError, StoreError, one_line


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
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OutputError(f"cannot write {path}: {reason}") from error


@contextlib.contextmanager
def locked(path: Path, taken: DmklError) -> Iterator[None]:
    """Hold a lock file against other processes, or raise `taken`. The lock ends with its process, however that ends."""
    with writing(path):
        file = path.open("a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(file.fileno()).st_nlink:  # somebody has just finished, and somebody else may begin
                raise BlockingIOError
        except BlockingIOError:
            raise taken from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def replacing(path: Path, *, keep: Path | None = None) -> Iterator[Path]:
    """A file to write that then takes the place of `path`, as a whole or not at all, also when power is lost; what was
    there goes to `keep`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield temporary
        _synchronise(temporary)
        if keep and path.exists():
            path.replace(keep)
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


def write_atomically(path: Path, data: bytes, *, keep: Path | None = None) -> None:
    """Replace `path` as a whole or not at all; what it was goes to `keep`."""
    with writing(path), replacing(path, keep=keep) as temporary:
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


def append_line(path: Path, text: str) -> None:
    """Add a line as a whole or not at all; a disk that fills up in its middle would spoil the next line too."""
    with writing(path), path.open("ab", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        rest = memoryview(f"{text}\n".encode())
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except BaseException:
            file.truncate(end)
            raise


def read_json_if_any(path: Path) -> dict[str, Any]:
    """The same; nothing if it is not there, damaged or being written."""
    try:
        return read_json(path)
    except StoreError:
        return {}


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())
