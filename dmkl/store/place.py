"""Where a store is: a folder of this machine, or a prefix of an object store.

    store.zarr, file:///data/store.zarr     a folder
    s3://bucket/store, gs://..., az://...   objects, each put as a whole
    memory://name                           objects in the memory of this process

Names are those of Zarr, below the store: 'zarr.json', 'gram/c/0/1/2'. A store exists when its 'zarr.json' does, which
is put last.

Object stores are reached through obstore, which takes credentials, region and endpoint from the environment. Nothing
of them is kept, and of what a server answers only its code goes into messages: answers quote the request.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from zarr.storage import MemoryStore, ObjectStore

from dmkl._util.files import append_line, is_url, locked, make_folder, writing
from dmkl._util.machine import threads_of
from dmkl._util.types import FloatArray, FloatType, StrPath, Table
from dmkl.errors import ConfigError, DmklError, OutputError, ResourceError, StoreError
from dmkl.store import format
from dmkl.store.format import write_layers, write_tile_file

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig
    from obstore.store import ObjectStore as Client
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

ROOT = "zarr.json"
LOG = "mended.jsonl"  # part of the format, as the next two
REPAIRS = "mended"
CLAIM = "creating.json"
CREDENTIALS = {  # of the schemes of object stores
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    "memory": "nothing",
}
ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")  # others make obstore panic
NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
BEYOND = re.compile(r"<Code>InvalidRange<|Invalid range: |416 Range")  # the end of an object
MACHINES = re.compile(r"//(169\.254\.169\.254|metadata\.google)")  # who is asked where the environment says nothing
CODE = re.compile(r"<Code>(\w+)</Code>")
Data = TypeVar("Data", bytes, memoryview)
LOST_SLASH = re.compile(r"(s3|gs|az|memory|file):/[^/]")


@dataclass(frozen=True)
class ConnectionOptions:
    """How long object stores are waited for, and how much is under way.

    Attributes
    ----------
    connect : seconds to connect
    answer : seconds for one request, with its data
    piece : bytes that one request asks for
    patience : seconds after which a request that failed is not tried again
    tries : how often it is tried again before that
    threads : requests at once, of one process
    in_memory : bytes of a tile that is written; those of larger ones wait in a temporary file
    """

    connect: float = 5.0
    answer: float = 30.0
    piece: int = 16 << 20
    patience: float = 20.0
    tries: int = 6
    threads: int = 8
    in_memory: int = 256 << 20


CONNECTIONS = ConnectionOptions()


class UnreachableStore(StoreError):
    """An object store that does not answer, or that refuses to."""


class Place(ABC):
    """Where a store is; `str()` is the text that opens it again.

    Attributes
    ----------
    remote : whether it is an object store, whose tiles are fetched; files of a folder are mapped
    shared : whether other processes can read it
    """

    remote: bool
    shared = True

    @property
    @abstractmethod
    def stem(self) -> str:
        """The last part of the path without its ending."""

    @property
    @abstractmethod
    def zarr(self) -> Any:
        """What Zarr opens."""

    def named(self, name: str) -> str:
        """The text of a file or object, for messages."""
        return f"{self}/{name}"

    @abstractmethod
    def absolute(self) -> Place:
        """The same place for processes with another working directory."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is a store, or something else that a new store would overwrite."""

    @abstractmethod
    def has_group(self) -> bool:
        """Whether there is a Zarr group."""

    @abstractmethod
    def names(self, folder: str) -> set[str]:
        """The names of everything below a folder, relative to it."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Bytes of a file or object; ValueError if there is none."""

    @abstractmethod
    def read(self, name: str, start: int, stop: int) -> bytes | memoryview:
        """Some bytes of a file or object. FileNotFoundError if there is none, ValueError if it is shorter."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Replace a file or object entirely or not at all."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a file or object, if there is one."""

    @abstractmethod
    def write_tile(
        self, name: str, side: int, depth: int, layers: Iterable[tuple[int, Iterable[FloatArray]]], dtype: FloatType
    ) -> None:
        """See `format.write_tile_file`."""

    @abstractmethod
    def building(self, taken: DmklError) -> AbstractContextManager[None]:
        """Keep other builders away where that is possible, or raise `taken`."""

    @abstractmethod
    def claim(self, header: Table) -> bool:
        """Before a store is created: False if another process has created one by now. The header may get the id of a
        process that creates the same store."""

    @abstractmethod
    def creating(self) -> AbstractContextManager[Any]:
        """Gives what Zarr writes a new group to; the store is there when the body ends, with all of it."""

    @abstractmethod
    def record(self, line: str) -> None:
        """Keep a record of a repair."""

    @abstractmethod
    def records(self) -> list[str]:
        """The names of the records of repairs, in their order."""

    @abstractmethod
    def read_record(self, name: str) -> str:
        """One of them."""

    @abstractmethod
    def check_space(self, needed: int) -> None:
        """Raise ResourceError if there is no room for so many bytes."""

    def check_lasting(self) -> None:
        """Refuse runs whose store would end with this process."""
        if not self.shared:
            raise ConfigError(
                f"{self} would end with this process, a run could not be continued",
                "use a folder or an object store; memory:// is for KernelStack and build_store",
            )

    def check_reach(self, remote: bool) -> None:
        """Refuse tasks in other processes that could not read the store."""
        if remote and not self.shared:
            raise ConfigError(
                f"{self} is in the memory of this process, workers of a cluster cannot read it",
                "use a folder or an object store, or leave the cluster out",
            )


class Folder(Place):
    """A folder of this machine."""

    remote = False

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def stem(self) -> str:
        return self.path.stem

    @property
    def zarr(self) -> Path:
        return self.path

    def absolute(self) -> Folder:
        return Folder(self.path.resolve())

    def exists(self) -> bool:
        return self.path.exists()

    def has_group(self) -> bool:
        return (self.path / ROOT).is_file()

    def names(self, folder: str) -> set[str]:
        top = str(self.path / folder)
        return {f"{where}/{name}"[len(top) + 1 :] for where, _, files in os.walk(top) for name in files}

    def size(self, name: str) -> int:
        path = self.path / name
        if path.resolve() != self.path.resolve() / name:  # one file could stand for a thousand
            raise ValueError(f"{path} is a link")
        if not path.is_file():  # a pipe would block the reader, and a device has no end
            raise ValueError(f"{path} is missing or no file")
        return path.stat().st_size

    def read(self, name: str, start: int, stop: int) -> bytes:
        with (self.path / name).open("rb") as file:
            file.seek(start)
            found = file.read(stop - start)
        return _whole(found, start, stop, self.named(name))

    def write(self, name: str, data: bytes) -> None:
        path = self.path / name
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
            try:
                temporary.write_bytes(data)
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise

    def delete(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def write_tile(
        self, name: str, side: int, depth: int, layers: Iterable[tuple[int, Iterable[FloatArray]]], dtype: FloatType
    ) -> None:
        path = self.path / name
        with writing(path):
            write_tile_file(path, side, depth, layers, dtype)

    @contextlib.contextmanager
    def building(self, taken: DmklError) -> Iterator[None]:
        make_folder(self.path.parent)
        with locked(self.path.with_name(f".{self.path.name}.lock"), taken):
            yield

    def claim(self, header: Table) -> bool:
        return True  # the lock says that no other process creates it

    @contextlib.contextmanager
    def creating(self) -> Iterator[Path]:
        temporary = self.path.with_name(f".{self.path.name}.creating")
        with writing(self.path):
            shutil.rmtree(temporary, ignore_errors=True)
            try:
                yield temporary
                temporary.rename(self.path)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise

    def record(self, line: str) -> None:
        append_line(self.path / LOG, line)

    def records(self) -> list[str]:
        try:
            return [str(number) for number, _ in enumerate((self.path / LOG).read_text().splitlines())]
        except FileNotFoundError:
            return []

    def read_record(self, name: str) -> str:
        return (self.path / LOG).read_text().splitlines()[int(name)]

    def check_space(self, needed: int) -> None:
        folder = next(parent for parent in [self.path, *self.path.parents] if parent.exists())
        free = shutil.disk_usage(folder).free
        if needed * format.LAYOUT.free_margin > free:
            raise ResourceError(
                f"the kernels need {needed / 1e9:.2f} GB, the disk of {folder} has {free / 1e9:.2f} GB free",
                "use another disk, fewer kernels or samples, or run.kernels = 'compute'",
            )


class Objects(Place):
    """A prefix of an object store, given as a URL that has been checked."""

    remote = True

    def __init__(self, url: str, client: Client | None = None) -> None:
        self.url = url
        self._scheme = urlsplit(url).scheme
        self.shared = self._scheme != "memory"
        self._connected = client

    def __str__(self) -> str:
        return self.url

    def __reduce__(self) -> tuple[type[Objects], tuple[str]]:
        """Another process makes its own connections when it needs them, with what its environment says."""
        return type(self), (self.url,)

    @property
    def _client(self) -> Client:
        if self._connected is None:
            self._connected = _client(self.url)
        return self._connected

    @property
    def stem(self) -> str:
        return PurePosixPath(self.url.partition("://")[2]).stem

    @functools.cached_property
    def zarr(self) -> ObjectsOfZarr:
        return ObjectsOfZarr(self, self._client)

    def absolute(self) -> Objects:
        return self

    def exists(self) -> bool:
        return self.has_group()

    def has_group(self) -> bool:
        import obstore

        try:
            with self.asking("read"):
                obstore.get(self._client, ROOT)  # not only its head: an answer without a body does not tell why
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str) -> set[str]:
        return set(self.sizes(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        """The sizes of all objects below a folder, by their names relative to it."""
        import obstore

        with self.asking("read"):
            found = [meta for part in obstore.list(self._client, prefix=folder) for meta in part]
        return {meta["path"].removeprefix(f"{folder}/"): meta["size"] for meta in found}

    def size(self, name: str) -> int:
        import obstore

        try:
            with self.asking("read"):
                return obstore.head(self._client, name)["size"]
        except FileNotFoundError:
            raise ValueError(f"{self.named(name)} is missing") from None

    def read(self, name: str, start: int, stop: int) -> memoryview:
        import obstore

        with self.asking("read"):
            (found,) = obstore.get_ranges(self._client, name, starts=[start], ends=[stop])
        return _whole(memoryview(found), start, stop, self.named(name))

    def read_from(self, name: str, start: int, size: int) -> memoryview:
        """An object of so many bytes from `start` on; ValueError, before anything is read, if it has another size."""
        import obstore

        stop = min(size, start + CONNECTIONS.piece)
        with self.asking("read"):
            found = obstore.get(self._client, name, options={"range": (start, stop)})
            if found.meta["size"] != size:
                raise ValueError(f"{self.named(name)} has {found.meta['size']:,} bytes, not {size:,}")
            piece = _whole(memoryview(found.bytes()), start, stop, self.named(name))
        if stop == size:
            return piece
        whole = bytearray(size - start)
        whole[: len(piece)] = piece
        for first in range(stop, size, CONNECTIONS.piece):
            last = min(size, first + CONNECTIONS.piece)
            whole[first - start : last - start] = self.read(name, first, last)
        return memoryview(whole)

    def read_parts(self, name: str, parts: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Some parts of an object from `start` to `stop`: neighbours with one request, others at the same time."""
        import obstore

        starts, stops = zip(*parts, strict=True)
        with self.asking("read"):
            found = obstore.get_ranges(self._client, name, starts=starts, ends=stops)
        return [_whole(memoryview(part), *ends, self.named(name)) for part, ends in zip(found, parts, strict=True)]

    def write(self, name: str, data: bytes) -> None:
        import obstore

        with self.asking("write"):
            obstore.put(self._client, name, data)

    def delete(self, name: str) -> None:
        import obstore

        with self.asking("write"), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._client, name)

    def write_tile(
        self, name: str, side: int, depth: int, layers: Iterable[tuple[int, Iterable[FloatArray]]], dtype: FloatType
    ) -> None:
        import obstore

        with tempfile.SpooledTemporaryFile(max_size=CONNECTIONS.in_memory) as file:
            with writing(Path(tempfile.gettempdir())):
                write_layers(file, side, depth, layers, dtype, self.named(name))
            file.seek(0)
            with self.asking("write"):
                obstore.put(self._client, name, file)

    def building(self, taken: DmklError) -> AbstractContextManager[None]:
        return contextlib.nullcontext()  # two builders put the same bits

    def claim(self, header: Table) -> bool:
        import obstore

        own = json.dumps(header, sort_keys=True).encode()
        with self.asking("write"):
            try:
                obstore.put(self._client, CLAIM, own, mode="create")
            except obstore.exceptions.AlreadyExistsError:
                self._join(header)
        if self.has_group():
            self.delete(CLAIM)
            return False
        return True

    def _join(self, header: Table) -> None:
        """Take the id of a process that creates the same store; refuse where it creates another one."""
        import obstore

        try:
            claimed = json.loads(bytes(obstore.get(self._client, CLAIM).bytes()))
            same = _text_of(claimed) == _text_of(header) and isinstance(claimed["id"], str)
        except FileNotFoundError:  # that process is done: the store exists
            return
        except (ValueError, KeyError, TypeError, AttributeError):
            same = False
        if not same:
            raise OutputError(
                f"another command began to build another store at {self}",
                f"choose another place; if no command runs there, delete {self.named(CLAIM)}",
            )
        header["id"] = claimed["id"]

    @contextlib.contextmanager
    def creating(self) -> Iterator[MemoryStore]:
        written: dict[str, Any] = {}
        yield MemoryStore(written)
        if self.has_group():  # another process, which creates the same store, was faster
            return
        root = written.pop(ROOT)
        for name in [name for name in written if name.startswith("row_means/")]:
            self.write(name, written.pop(name).to_bytes())  # before that process can have computed them
        with threads_of(CONNECTIONS.threads) as each:
            each(lambda name: self.write(name, written[name].to_bytes()), written)
        self.write(ROOT, root.to_bytes())
        self.delete(CLAIM)

    def record(self, line: str) -> None:
        self.write(f"{REPAIRS}/{time.time_ns()}-{uuid.uuid4().hex[:8]}.json", line.encode())

    def records(self) -> list[str]:
        return sorted(self.names(REPAIRS))

    def read_record(self, name: str) -> str:
        name = f"{REPAIRS}/{name}"
        return bytes(self.read(name, 0, self.size(name))).decode()

    def check_space(self, needed: int) -> None:
        pass  # nobody says how much there is

    @contextlib.contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Turn errors of obstore met while doing `what` ('read' or 'write') into one clear message."""
        import obstore

        try:
            yield
        except FileNotFoundError as error:
            if what == "write" or _code(error) in NO_BUCKET:
                raise self._refusal(error, what) from None
            raise
        except obstore.exceptions.BaseError as error:
            raise self._refusal(error, what) from None

    def _refusal(self, error: Exception, what: str) -> Exception:
        import obstore

        text, code = str(error), _code(error)
        refused = obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError
        settings = f"set {CREDENTIALS[self._scheme]} in the environment"
        again = f"check the network and {CREDENTIALS[self._scheme]}, then run the same command again"
        if BEYOND.search(text):
            return ValueError(f"an object of {self} ends before it should")
        if code in NO_BUCKET:
            reason, hint = "there is no such bucket", "create the bucket, or correct the URL"
        elif isinstance(error, refused):
            reason, hint = f"access is refused{f' ({code})' if code else ''}", f"check the credentials: {settings}"
        elif MACHINES.search(text):
            reason, hint = "there are no credentials", settings
        elif "BadScheme" in text:
            reason = "its server is not reached through https"
            hint = f"use an https endpoint, or set {_http_setting(self._scheme)}=true in the environment"
        elif found := re.search(r"status code: (\d{3} [\w ]+)", text):
            reason, hint = f"the server answers {found[1].strip()}{f' ({code})' if code else ''}", again
        else:
            reason, hint = "the server does not answer", again
        kind = UnreachableStore if what == "read" else OutputError
        return kind(f"cannot {what} {self}: {reason}", hint)


class ObjectsOfZarr(ObjectStore[Any]):
    """Zarr's own store over obstore, with the messages of its place."""

    def __init__(self, place: Objects, client: Client) -> None:
        super().__init__(client)
        self.place = place

    def __str__(self) -> str:
        return str(self.place)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        with self.place.asking("read"):
            return await super().get(key, prototype, byte_range)

    async def set(self, key: str, value: Buffer) -> None:
        with self.place.asking("write"):
            await super().set(key, value)


def place_of(where: StrPath | Place) -> Place:
    """The place that a path or a URL names.

    Raises
    ------
    ConfigError
        If a URL is not one of a store, or obstore is needed and not installed.
    """
    if isinstance(where, Place):
        return where
    text = os.fspath(where)
    if not is_url(text):
        if isinstance(where, Path) and LOST_SLASH.match(text):
            raise ConfigError("a URL was made a Path, which loses one of its slashes", "give it as text")
        return Folder(Path(text))
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Folder(Path(unquote(parts.path)))
    if parts.scheme not in CREDENTIALS:
        known = ", ".join(f"{scheme}://" for scheme in (*CREDENTIALS, "file"))
        raise ConfigError(f"a store cannot be at {parts.scheme}://{parts.hostname or ''}", f"use a folder or {known}")
    if "@" in parts.netloc or parts.query or parts.fragment:  # the URL is written into run directories
        raise ConfigError(
            f"the URL of a store at {parts.scheme}:// has more than bucket and path",
            f"set credentials in the environment: {CREDENTIALS[parts.scheme]}",
        )
    if not parts.netloc:
        raise ConfigError(f"'{text}' names no bucket", f"write {parts.scheme}://BUCKET/STORE")
    url = text.rstrip("/")
    return Objects(url, _client(url))


def _client(url: str) -> Client:
    """A connection to a prefix."""
    try:
        from obstore.store import from_url
    except ImportError:
        raise ConfigError(
            f"{url} needs the package obstore, which is not installed", "pip install 'dmkl[cloud]'"
        ) from None
    import obstore

    scheme = urlsplit(url).scheme
    if scheme == "memory":
        return _in_memory(url)
    for name in ENDPOINTS:
        if os.environ.get(name) and not re.match(r"https?://[^/]", os.environ[name]):
            raise ConfigError(f"{name} in the environment is no URL", f"write {name}=https://HOST:PORT")
    allowed = os.environ.get(_http_setting(scheme), "").lower() in ("1", "true", "yes")
    client: ClientConfig = {
        "connect_timeout": timedelta(seconds=CONNECTIONS.connect),
        "timeout": timedelta(seconds=CONNECTIONS.answer),
        "allow_http": allowed,
    }
    retry: RetryConfig = {
        "max_retries": CONNECTIONS.tries,
        "retry_timeout": timedelta(seconds=CONNECTIONS.patience),
    }
    try:
        return from_url(url, client_options=client, retry_config=retry)
    except (obstore.exceptions.BaseError, ValueError, OSError):
        raise ConfigError(f"{url} cannot be opened as it is", f"set {CREDENTIALS[scheme]} in the environment") from None


@functools.cache
def _in_memory(url: str) -> Client:
    """The objects of a place in memory, for as long as the process lives."""
    from obstore.store import MemoryStore

    return MemoryStore()


def _http_setting(scheme: str) -> str:
    return {"s3": "AWS_ALLOW_HTTP", "gs": "GOOGLE_ALLOW_HTTP"}.get(scheme, "AZURE_ALLOW_HTTP")


def _code(error: Exception) -> str:
    found = CODE.search(str(error))
    return found[1] if found else ""


def _text_of(header: Table) -> str:
    """What two headers of the same store share."""
    return json.dumps({key: header[key] for key in header if key not in ("id", "version", "config")}, sort_keys=True)


def _whole(found: Data, start: int, stop: int, name: str) -> Data:
    if len(found) != stop - start:
        raise ValueError(f"{name} ends before it should")
    return found
