"""Small files written atomically, zip archives checked before reading, system errors as clear messages."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import re
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from dmkl.errors import DmklError, OutputError, ResourceError, StoreError, one_line

if TYPE_CHECKING:
    from dmkl._util.types import Table


def is_url(text: str) -> bool:
    """Whether a text names a place with a scheme, as s3://bucket/store does."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None


@contextlib.contextmanager
def writing(path: object) -> Iterator[None]:
    """Turn system errors met while writing `path`, such as a full disk, into one clear message."""
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
    """Hold a lock file against other processes, or raise `taken`.

    The lock is released when its process ends, however it ends.
    """
    with writing(path):
        file = path.open("a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(file.fileno()).st_nlink:  # its holder has just removed it
                raise BlockingIOError
        except BlockingIOError:
            raise taken from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder and its parents if they do not exist."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def replacing(path: Path, *, keep: Path | None = None) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` when the body ends, entirely or not at all, even if power is lost.

    An earlier file at `path` is moved to `keep`.
    """
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
    """Replace `path` entirely or not at all; an earlier file is moved to `keep`."""
    with writing(path), replacing(path, keep=keep) as temporary:
        temporary.write_bytes(data)


def append_line(path: Path, text: str) -> None:
    """Append a line entirely or not at all: half a line, left by a full disk, would spoil the next one too."""
    with writing(path), path.open("ab", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        rest = memoryview(f"{text}\n".encode())
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except BaseException:
            file.truncate(end)
            raise


def read_json(path: Path) -> Table:
    """Read a file that should hold a JSON object."""
    if not path.is_file():  # reading a pipe would never end
        raise StoreError(f"{path} is missing or is not a regular file")
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({one_line(error)})") from error
    if not isinstance(value, dict):
        raise StoreError(f"{path} is damaged (it does not hold a JSON object)")
    return value


def read_json_if_any(path: Path) -> Table:
    """Read a JSON object; an empty one if the file is missing, damaged or still being written."""
    try:
        return read_json(path)
    except StoreError:
        return {}


def write_json(path: Path, value: object) -> None:
    """Replace a file with a value as indented JSON."""
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())


def finite(value: object) -> object:
    """The value with None in place of infinities and nan, which JSON lacks."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


DEFLATE_RATIO = 1032  # the largest factor by which deflated data can expand
SLACK = 1024  # bytes beyond it


def check_members(archive: zipfile.ZipFile, nbytes: int, *, compressed: bool = False) -> None:
    """Check the members of an archive of `nbytes` bytes.

    Members are never extracted, so a path outside the archive could do no harm; it is refused because no file of dmkl
    holds one.

    Raises
    ------
    ValueError
        A member claims more bytes than it can hold, is compressed in an unexpected way (only deflated members are
        allowed, if `compressed`), is a link, is encrypted, appears twice, or has a path outside the archive.
    """
    members = archive.infolist()
    seen: set[str] = set()
    for member in members:
        name, path = member.filename, PurePosixPath(member.filename.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or PureWindowsPath(name).drive:
            raise ValueError(f"member '{name}' has a path outside the archive")
        if name.removesuffix(".npy") in seen:
            raise ValueError(f"member '{name}' appears twice")
        seen.add(name.removesuffix(".npy"))
        if stat.S_ISLNK(member.external_attr >> 16) or member.flag_bits & 1:
            raise ValueError(f"member '{name}' is a link or encrypted")
        stored = member.compress_type == zipfile.ZIP_STORED
        if not stored and not (compressed and member.compress_type == zipfile.ZIP_DEFLATED):
            raise ValueError(f"member '{name}' is compressed in an unexpected way")
        most = member.compress_size if stored else DEFLATE_RATIO * member.compress_size + SLACK
        if member.file_size > most:
            raise ValueError(f"member '{name}' claims {member.file_size:,} bytes but can hold at most {most:,}")
    if sum(member.compress_size for member in members) > nbytes:
        raise ValueError("its members overlap")
