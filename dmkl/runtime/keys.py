"""TLS for schedulers and workers: one certificate for all of them, signed by an authority made for this purpose.

Both ends of every connection show the certificate and demand the other's (mutual authentication), so holding the folder
is what lets somebody in. The authority's own key is thrown away: nobody can sign a second certificate.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from dmkl._util.files import writing
from dmkl.errors import ClusterError, OutputError

DEFAULT = Path("~/.config/dmkl/keys")
AUTHORITY, CERTIFICATE, KEY = "ca.pem", "cert.pem", "key.pem"
DAYS = 825
LIMIT = 30.0  # seconds for openssl


def keys_folder(tls: bool | str) -> Path:
    """Of `tls = true` or `tls = "FOLDER"`."""
    return (Path(tls) if isinstance(tls, str) and tls else DEFAULT).expanduser().absolute()


def make_keys(folder: Path) -> Path:
    """Write ca.pem, cert.pem and key.pem (0600) into a folder that only its owner can enter."""
    if (folder / KEY).exists():
        raise OutputError(
            f"{folder} holds keys already", "remove it first: runs that use them will not find each other"
        )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            _sign(Path(temporary))
            for name in (AUTHORITY, CERTIFICATE, KEY):
                made = Path(temporary, name)
                made.chmod(0o600)
                made.replace(folder / name)
    return folder


def _sign(folder: Path) -> None:
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    authority = ("-x509", "-days", str(DAYS), "-subj", "/CN=dmkl authority", "-keyout", "ca.key", "-out", AUTHORITY)
    _openssl(folder, "req", *curve, *authority)
    _openssl(folder, "req", *curve, "-subj", "/CN=dmkl", "-keyout", KEY, "-out", "request.pem")
    by = ("-CA", AUTHORITY, "-CAkey", "ca.key", "-CAcreateserial", "-days", str(DAYS))
    _openssl(folder, "x509", "-req", "-in", "request.pem", *by, "-out", CERTIFICATE)


def _openssl(folder: Path, *arguments: str) -> None:
    command = ["openssl", *arguments]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False, preexec_fn=_private
        )
    except FileNotFoundError:
        raise ClusterError("the openssl command is not installed", "install openssl") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"openssl {arguments[0]} took more than {LIMIT:.0f} s") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ClusterError(f"openssl {arguments[0]} failed: {last}")


def _private() -> None:
    os.umask(0o077)


def security(tls: bool | str) -> Any:
    """Dask's security object of the keys, None without TLS; keys that others can read are refused."""
    if not tls:
        return None
    from distributed.security import Security

    folder = keys_folder(tls)
    paths = {name: folder / name for name in (AUTHORITY, CERTIFICATE, KEY)}
    missing = [str(path) for path in paths.values() if not path.is_file()]
    if missing:
        raise ClusterError(f"no TLS keys: {missing[0]} is missing", f"make them with: dmkl cluster keys -o {folder}")
    if paths[KEY].stat().st_mode & 0o077:
        raise ClusterError(f"others can read {paths[KEY]}", f"chmod 600 {paths[KEY]}, or make new keys")
    roles: dict[str, Any] = {"tls_ca_file": str(paths[AUTHORITY]), "require_encryption": True}
    for role in ("client", "scheduler", "worker"):
        roles |= {f"tls_{role}_cert": str(paths[CERTIFICATE]), f"tls_{role}_key": str(paths[KEY])}
    return Security(**roles)
