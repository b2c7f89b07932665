"""Zip files that anybody may have written: what they claim is checked before any member is read."""

from __future__ import annotations

import stat
import zipfile
from pathlib import PurePosixPath, PureWindowsPath

DEFLATE_RATIO = 1032  # more than this, and a few bytes, no deflated member expands
SLACK = 1024


def check_members(archive: zipfile.ZipFile, nbytes: int, *, compressed: bool = False) -> None:
    """ValueError for an archive of `nbytes` that claims what it cannot hold, or holds what nobody of ours writes.

    Members are never extracted, so a path that leads outside could do no harm; it still says that somebody tried.
    """
    members = archive.infolist()
    seen: set[str] = set()
    for member in members:
        name, path = member.filename, PurePosixPath(member.filename.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or PureWindowsPath(name).drive:
            raise ValueError(f"member '{name}' leads outside of the file")
        if name.removesuffix(".npy") in seen:
            raise ValueError(f"member '{name}' is there twice")
        seen.add(name.removesuffix(".npy"))
        if stat.S_ISLNK(member.external_attr >> 16) or member.flag_bits & 1:
            raise ValueError(f"member '{name}' is a link or encrypted")
        stored = member.compress_type == zipfile.ZIP_STORED
        if not stored and not (compressed and member.compress_type == zipfile.ZIP_DEFLATED):
            raise ValueError(f"member '{name}' is compressed in an unexpected way")
        most = member.compress_size if stored else DEFLATE_RATIO * member.compress_size + SLACK
        if member.file_size > most:
            raise ValueError(f"member '{name}' claims {member.file_size:,} bytes, {most:,} are the most there can be")
    if sum(member.compress_size for member in members) > nbytes:
        raise ValueError("members overlap")
