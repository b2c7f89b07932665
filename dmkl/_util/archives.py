"""Zip files from untrusted sources: their claims are checked before any member is read."""

from __future__ import annotations

import stat
import zipfile
from pathlib import PurePosixPath, PureWindowsPath

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
