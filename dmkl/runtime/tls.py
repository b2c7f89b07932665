"""Who may connect to a Dask scheduler and its workers: TLS keys, and the refusal of open networks.

There is one certificate for scheduler, workers and coordinator, signed by an authority that is made for it. Both ends
of every connection show the certificate and demand the other's (mutual authentication): access to the folder of the
keys is access to the cluster. The authority's own key is thrown away, so nobody can sign a second certificate.
"""

from __future__ import annotations

import ipaddress
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dmkl._util.files import writing
from dmkl.errors import ClusterError, OutputError

if TYPE_CHECKING:
    from distributed.security import Security

DEFAULT = Path("~/.config/dmkl/keys")
AUTHORITY, CERTIFICATE, KEY = "ca.pem", "cert.pem", "key.pem"
DAYS = 825  # that a certificate is valid: the longest that some TLS libraries accept
LIMIT = 30.0  # seconds for openssl


def keys_folder(tls: bool | str) -> Path:
    """The folder of `tls = true` or of `tls = "FOLDER"`."""
    return (Path(tls) if isinstance(tls, str) and tls else DEFAULT).expanduser().absolute()


def make_keys(folder: Path) -> Path:
    """Write ca.pem, cert.pem and key.pem (0600) into a folder that only its owner can enter."""
    if (folder / KEY).exists():
        raise OutputError(
            f"{folder} holds keys already",
            "remove the folder first; runs that use its keys will lose their connections",
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
            command, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False, umask=0o077
        )
    except FileNotFoundError:
        raise ClusterError("the openssl command is not installed", "install openssl") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"openssl {arguments[0]} took more than {LIMIT:.0f} s") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ClusterError(f"openssl {arguments[0]} failed: {last}")


def security(tls: bool | str) -> Security | None:
    """Dask's security object of the keys, None without TLS; keys that other users can read are refused."""
    if not tls:
        return None
    from distributed.security import Security

    folder = keys_folder(tls)
    paths = {name: folder / name for name in (AUTHORITY, CERTIFICATE, KEY)}
    missing = [str(path) for path in paths.values() if not path.is_file()]
    if missing:
        raise ClusterError(f"no TLS keys: {missing[0]} is missing", f"make them with: dmkl cluster keys -o {folder}")
    if paths[KEY].stat().st_mode & 0o077:
        raise ClusterError(f"other users can read {paths[KEY]}", f"chmod 600 {paths[KEY]}, or make new keys")
    roles: dict[str, str | bool] = {"tls_ca_file": str(paths[AUTHORITY]), "require_encryption": True}
    for role in ("client", "scheduler", "worker"):
        roles |= {f"tls_{role}_cert": str(paths[CERTIFICATE]), f"tls_{role}_key": str(paths[KEY])}
    return Security(**roles)


def is_loopback(host: str) -> bool:
    """Whether an address, a host or an interface can be reached from this machine only."""
    if host in ("lo", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        pass
    if host in {name for _, name in socket.if_nameindex()}:
        return False
    try:
        return all(ipaddress.ip_address(str(info[4][0])).is_loopback for info in socket.getaddrinfo(host, None))
    except (OSError, ValueError):
        return False


def require_private(host: str, *, tls: bool | str, insecure: bool) -> None:
    """Refuse a scheduler that others on the network could use: it and its workers run any code that they are sent.

    Parameters
    ----------
    host
        An address, a name or an interface; '' is the host's own public address.
    tls
        Whether connections are encrypted.
    insecure
        Whether the user has allowed connections that are not.
    """
    if tls or insecure or is_loopback(host):
        return
    raise ClusterError(
        f"a scheduler on {host or 'a public address'} without TLS would run anybody's code",
        "make keys with: dmkl cluster keys, and use tls:// or, in a cluster profile, tls = true "
        "(on a network that nobody else uses: -s cluster.insecure=true)",
    )
