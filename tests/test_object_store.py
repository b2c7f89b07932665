"""Stores on object stores: in memory, and on moto's S3 server, which answers on this machine."""

from __future__ import annotations

import contextlib
import json
import logging
import pickle
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import KERNELS, assert_same_model, save_npz, single, small_working_sets, three_classes, whole

import dmkl
from dmkl._util.machine import Budget
from dmkl.cli.main import main
from dmkl.config import parse_config
from dmkl.data import Dataset
from dmkl.errors import ConfigError, OutputError, StoreError
from dmkl.estimators import VSKLClassifier
from dmkl.events import Event, RoundDone
from dmkl.kernels import plan_bank
from dmkl.run import RunContext, RunDirectory, train_run
from dmkl.runtime import Local, open_runtime
from dmkl.stack import open_stack
from dmkl.stack.tiles import MemoryShares
from dmkl.store import Folder, KernelStore, build_store, place_of
from dmkl.store import place as places
from dmkl.store.fetched import FETCHING
from dmkl.store.place import CLAIM, ConnectionOptions, Objects, UnreachableStore

SECRET = "a-secret-that-nobody-writes-down"
VSKL = dmkl.VSKL(q=2, C=10)
CONFIG = """
[data]
path = "data.npz"
test = 0.25
[[kernels]]
kernel = "rbf"
width = ["0.5 median", "1 median"]
[[kernels]]
kernel = "linear"
normalise = ["centre", "unit-trace"]
[formulation]
name = "vskl"
C = 5
[run]
tile = 40
"""


class Server:
    """moto's S3 server, which can go away and come back with what it had."""

    def __init__(self) -> None:
        with contextlib.closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = Server()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", server.url)
        patch.setenv("AWS_ACCESS_KEY_ID", "someone")
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_ALLOW_HTTP", "true")
        import boto3

        boto3.client("s3", endpoint_url=server.url).create_bucket(Bucket="bucket")
        yield server
    server.stop()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "CONNECTIONS", ConnectionOptions(connect=1, patience=1, tries=2))


@pytest.fixture(params=["folder", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A place of each kind, where nothing is."""
    if request.param == "folder":
        return place_of((tmp_path / "k.zarr").as_uri())
    if request.param == "s3":
        request.getfixturevalue("server")
    return place_of(f"{request.param}://bucket/{tmp_path.name}/k.zarr")


@pytest.fixture
def remote(server: Server, tmp_path: Path, store: KernelStore) -> KernelStore:
    """A copy of the session's store on S3."""
    where = f"s3://bucket/{tmp_path.name}/copy.zarr"
    copy_up(store.path, where)
    return KernelStore(where)


def copy_up(folder: Path, where: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            place_of(where).write(str(path.relative_to(folder)), path.read_bytes())


def copy_down(place: Objects, folder: Path) -> Path:
    for name, size in place.sizes("").items():
        Folder(folder).write(name, bytes(place.read(name, 0, size)))
    return folder


def content(place: Any, name: str) -> bytes:
    return bytes(place.read(name, 0, place.size(name)))


def built(place: Any, data: Dataset, **options: Any) -> KernelStore:
    return build_store(place, single(plan_bank(KERNELS, data)), data, Local(2), largest_tile=40, **options)


def flipped(store: KernelStore, i: int, j: int) -> None:
    raw = bytearray(content(store.place, store.tile_name(i, j)))
    raw[50] ^= 4
    store.place.write(store.tile_name(i, j), bytes(raw))


def truncated(store: KernelStore, i: int, j: int) -> None:
    name = store.tile_name(i, j)
    store.place.write(name, content(store.place, name)[:-1000])


def removed(store: KernelStore, i: int, j: int) -> None:
    store.place.delete(store.tile_name(i, j))


def emptied(store: KernelStore, i: int, j: int) -> None:
    store.place.write(store.tile_name(i, j), b"")


DAMAGED = pytest.mark.parametrize("damage", [flipped, truncated, removed, emptied])


# --- every kind of place


def test_places_do_the_same(place: Any) -> None:
    assert not place.exists()
    assert place.names("a") == set()
    place.write("zarr.json", b"{}")
    place.write("a/b/c", b"0123456789")
    place.write("a/b/c", b"abcdefghij")
    assert place.exists()
    assert place.has_group()
    assert place.names("a") == {"b/c"}
    assert place.size("a/b/c") == 10
    assert bytes(place.read("a/b/c", 2, 5)) == b"cde"
    for start, stop in ((8, 11), (20, 30)):
        with pytest.raises(ValueError, match="ends before it should"):
            place.read("a/b/c", start, stop)
    with pytest.raises(FileNotFoundError):
        place.read("a/b/d", 0, 1)
    with pytest.raises(ValueError, match="missing"):
        place.size("a/b/d")
    place.record("one")
    place.record("two")
    assert [place.read_record(name) for name in place.records()] == ["one", "two"]
    place.delete("a/b/c")
    place.delete("a/b/c")
    assert place.names("a") == set()
    assert str(pickle.loads(pickle.dumps(place))) == str(place)


def test_a_store_is_the_same_everywhere(place: Any, store: KernelStore, data: Dataset) -> None:
    mine = built(place, data)
    assert (mine.place.remote, mine.complete, mine.tiles) == (place.remote, True, store.tiles)
    for pair in store.pairs:
        assert content(mine.place, mine.tile_name(*pair)) == store.tile_path(*pair).read_bytes()
    assert np.array_equal(mine.row_means(), store.row_means())
    assert np.array_equal(whole(mine), whole(store))
    assert mine.place.names("") & {CLAIM, "mended.jsonl"} == set()
    stack = open_stack(KernelStore(str(place)))
    assert stack.backend == "memory"
    fit, alone = dmkl.solve(stack, data.labels, VSKL), dmkl.solve(open_stack(store), data.labels, VSKL)
    for name in ("weights", "coef", "intercept"):
        assert np.array_equal(getattr(fit, name), getattr(alone, name)), name
    assert np.array_equal(stack.to_dask().compute(scheduler="threads"), open_stack(store).to_dask().compute())


def test_a_build_continues_with_what_is_missing(place: Any, data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = built(place, data)
    before = {pair: content(mine.place, mine.tile_name(*pair)) for pair in mine.pairs}
    lost = [(0, 0), (0, 3), (2, 2)]
    for pair in lost:
        removed(mine, *pair)
    assert mine.missing() == lost
    with pytest.raises(StoreError, match=r"lacks 3 of 10 tiles"):
        open_stack(mine)
    written, write = [], KernelStore.write_tile
    monkeypatch.setattr(
        KernelStore, "write_tile", lambda self, i, j, tiles: written.append((i, j)) or write(self, i, j, tiles)
    )
    again = built(place, data)
    assert sorted(written) == lost
    assert again.id == mine.id
    assert {pair: content(again.place, again.tile_name(*pair)) for pair in again.pairs} == before
    with pytest.raises(StoreError, match="built from other data"):
        built(place, three_classes(seed=5))


@DAMAGED
@pytest.mark.parametrize("backend", ["memory", "disk"])
def test_damage_is_repaired_and_recorded(
    place: Any, store: KernelStore, data: Dataset, damage: Callable[..., None], backend: str
) -> None:
    mine = built(place, data)
    stack = open_stack(mine, backend="disk")
    damage(mine, 1, 3)
    if backend == "memory" and damage is not removed:  # a store that lacks tiles is refused
        stack = open_stack(mine, backend="memory")
    weights = np.linspace(1, 2, mine.s)
    assert np.array_equal(stack.combine(weights), open_stack(store).combine(weights))
    name = mine.tile_name(1, 3)
    assert content(mine.place, name) == store.tile_path(1, 3).read_bytes()
    was = "missing" if damage is removed else "damaged"
    assert stack.news() == [f"a tile was {was} and has been computed again: {mine.place.named(name)}"]
    assert stack.news() == []


def test_tiles_that_are_computed_need_no_objects(place: Any, data: Dataset, store: KernelStore) -> None:
    mine = built(place, data, computed=True)
    assert mine.place.names("gram") == set()
    assert open_stack(mine, backend="computed").backend == "computed"
    for backend in ("computed", "memory"):
        stack, other = open_stack(mine, backend=backend), open_stack(store)
        assert np.array_equal(stack.combine(np.ones(mine.s)), other.combine(np.ones(mine.s)))


# --- tiles that are fetched


def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of objects that parts are read of, from now on."""
    seen: list[str] = []
    for method in ("read_from", "read_parts"):
        was = getattr(Objects, method)

        def read(self: Objects, name: str, *arguments: Any, was: Any = was) -> Any:
            if name.startswith("gram/"):
                seen.append(name)
            return was(self, name, *arguments)

        monkeypatch.setattr(Objects, method, read)
    return seen


def test_what_fits_is_fetched_once(remote: KernelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = requests(monkeypatch)
    stack = open_stack(remote, workers=1)
    fetched = len(seen)
    assert fetched == 2 * len(remote.pairs)  # the index, then all layers
    stack.combine(np.ones(stack.s))
    stack.correlate(np.ones((stack.n, 1)))
    assert len(seen) == fetched


def test_what_does_not_fit_is_fetched_in_each_pass(
    remote: KernelStore, store: KernelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dmkl.stack.tiles.SHARES", MemoryShares(here=0.0))
    monkeypatch.setattr("dmkl.store.fetched.cores", lambda: 8)
    stack = open_stack(remote, workers=1)
    assert (stack.backend, stack.held_bytes, stack.source.smallest_read) == ("fetched", 0, 38)
    layer = 38 * 38 * 4
    monkeypatch.setattr(stack.source, "_room", 40 * layer)  # of 60
    assert stack.source.store.fetched.together == 1
    seen = requests(monkeypatch)
    chosen = stack.choose([1, 4])
    chosen.combine(np.ones(2))
    asked = len(seen)
    assert asked == 3 * len(remote.pairs)  # the index and two layers
    weights = np.linspace(1, 2, stack.s)
    for _ in range(2):
        assert np.array_equal(stack.combine(weights), open_stack(store).combine(weights))
        assert len(seen) > asked
        asked = len(seen)
    samples = np.array([3, 90, 41, 120])
    seen.clear()
    stack.source.diagonal(samples[:1])
    assert set(seen) <= {"gram/c/0/0/0"}  # nothing ahead where no pass is made
    assert np.array_equal(stack.source.cross(samples, samples), open_stack(store).source.cross(samples, samples))
    assert np.array_equal(stack.source.diagonal(samples), open_stack(store).source.diagonal(samples))


def test_the_next_tiles_are_fetched_while_others_are_used(remote: KernelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread computes, several requests are under way."""
    under_way, most, lock = 0, 0, threading.Lock()
    read_parts = Objects.read_parts

    def slow(self: Objects, *arguments: Any) -> Any:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.05)
        with lock:
            under_way -= 1
        return read_parts(self, *arguments)

    monkeypatch.setattr(Objects, "read_parts", slow)
    open_stack(remote, workers=1)
    assert most == 1 + FETCHING.ahead


def test_only_the_layers_that_are_wanted_are_read(remote: KernelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    parts = Objects.read_parts
    monkeypatch.setattr(
        Objects,
        "read_parts",
        lambda self, name, wanted: read.extend(b - a for a, b in wanted) or parts(self, name, wanted),
    )
    remote.read_tile(2, 0, 1)
    remote.read_tile(2, 0, 1)
    assert read == [38 * 38 * 4 + 4]


# --- on the way


def test_copied_down_it_is_a_local_store(server: Server, data: Dataset, store: KernelStore, tmp_path: Path) -> None:
    mine = built(f"s3://bucket/{tmp_path.name}/k.zarr", data)
    local = KernelStore(copy_down(mine.place, tmp_path / "down.zarr"))
    assert np.array_equal(whole(local), whole(store))
    assert local.id == mine.id
    with pytest.raises(StoreError, match=r"s3://.* is not in a folder of this machine"):
        _ = mine.path


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_two_who_create_the_same_store_make_one(server: Server, data: Dataset, tmp_path: Path) -> None:
    where = f"s3://bucket/{tmp_path.name}/k.zarr"
    place, bank = place_of(where), single(plan_bank(KERNELS, data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dmkl.store.store.write_dataset", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build_store(where, bank, data, Local(1), largest_tile=40)
    assert place.names("") == {CLAIM}
    begun = json.loads(content(place, CLAIM))["id"]
    with pytest.raises(OutputError, match="another command began to build another store") as refusal:
        built(where, three_classes(seed=5))
    assert refusal.value.hint.endswith(f"delete {where}/{CLAIM}")
    mine = build_store(where, bank, data, Local(1), largest_tile=40)
    assert begun == mine.id
    late = KernelStore.create(place, bank, data, mine.grid, {})  # it had looked before the store was there
    assert late.id == mine.id
    assert CLAIM not in place.names("")
    with pytest.raises(StoreError, match="built from other data"):
        KernelStore.create(place, bank, three_classes(seed=5), mine.grid, {})


def test_a_claim_of_bytes_is_checked_before_they_are_read(remote: KernelStore) -> None:
    node = remote.views.entries["points"]["node"]
    remote.place.write(f"{node}/values/c/1/0", bytes(10))
    with pytest.raises(StoreError, match=r"is damaged .*(10 bytes|has 10)"):
        KernelStore(remote.place)


@pytest.fixture(scope="module")
def workers(server: Server) -> Iterator[Any]:
    """Two worker processes, with the environment that names the server."""
    with open_runtime("local:2") as runtime:
        yield runtime


def test_workers_read_and_write_tiles_themselves(
    server: Server, store: KernelStore, data: Dataset, workers: Any, tmp_path: Path
) -> None:
    where = f"s3://bucket/{tmp_path.name}/built.zarr"
    mine = build_store(where, single(plan_bank(KERNELS, data)), data, workers, largest_tile=40)
    for pair in store.pairs:
        assert content(mine.place, mine.tile_name(*pair)) == store.tile_path(*pair).read_bytes()
    flipped(mine, 1, 3)
    stack = open_stack(mine, runtime=workers)
    assert (stack.backend, stack.source.backend) == ("cluster", "cluster")  # held by the workers
    stacks = stack, open_stack(store), open_stack(store, runtime=workers)
    fits = [dmkl.solve(one, data.labels, VSKL, tol=1e-6) for one in stacks]
    for name in ("weights", "coef", "intercept"):
        for fit in fits[1:]:
            assert np.array_equal(getattr(fits[0], name), getattr(fit, name)), name
    assert content(mine.place, mine.tile_name(1, 3)) == store.tile_path(1, 3).read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dmkl.stack.tiles.SHARES", MemoryShares(workers=0.0))
        passing = open_stack(mine, runtime=workers)
    assert passing.source.backend == "fetched"
    assert np.array_equal(passing.combine(np.ones(mine.s)), open_stack(store).combine(np.ones(mine.s)))
    assert open_stack(store).moved(workers).identity == store.id
    for refused in (
        lambda: built_in_memory(data, workers),
        lambda: open_stack(built_in_memory(data, Local(1)), runtime=workers),
    ):
        with pytest.raises(ConfigError, match="in the memory of this process, workers"):
            refused()
    held = open_stack(built_in_memory(data, Local(1)))
    assert held.moved(workers) is held


def built_in_memory(data: Dataset, runtime: Any) -> KernelStore:
    return build_store("memory://refused", plan_bank(KERNELS, data), data, runtime, largest_tile=40)


def test_two_builders_at_once_make_one_store(server: Server, data: Dataset, store: KernelStore, tmp_path: Path) -> None:
    where = f"s3://bucket/{tmp_path.name}/k.zarr"
    with ThreadPoolExecutor(3) as pool:
        stores = list(pool.map(lambda _: built(where, data), range(3)))
    assert len({mine.id for mine in stores}) == 1
    assert stores[0].complete
    assert CLAIM not in stores[0].place.names("")
    for pair in store.pairs:
        assert content(stores[0].place, store.tile_name(*pair)) == store.tile_path(*pair).read_bytes()


def test_large_objects_go_in_parts(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(places, "CONNECTIONS", ConnectionOptions(in_memory=1 << 20, piece=3 << 20))
    place, local = place_of(f"s3://bucket/{tmp_path.name}"), Folder(tmp_path)
    values = np.random.default_rng(0).random((7, 512, 512), np.float32)
    for one in (place, local):
        one.write_tile("t", 512, 7, ((a, [layer]) for a, layer in enumerate(values)), values.dtype)
    assert content(place, "t") == content(local, "t")
    assert bytes(place.read_from("t", 100, local.size("t"))) == content(local, "t")[100:]
    with pytest.raises(ValueError, match=r"layers \[2\] are missing"):
        place.write_tile("u", 512, 3, ((a, [layer]) for a, layer in enumerate(values[:2])), values.dtype)
    assert place.names("") == {"t"}


# --- the command line


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save_npz(tmp_path / "data.npz", three_classes(120))
    (tmp_path / "config.toml").write_text(CONFIG)
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster/slurm.toml").write_text("walltime = '1 h'\ninterface = 'lo'\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> int:
    return main(list(arguments))


def test_the_commands_take_urls(server: Server, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = f"s3://bucket/{folder.name}/photos.zarr"
    assert run("kernels", "config.toml", "-o", where) == 0
    assert run("kernels", "config.toml", "-o", where, "--cluster", "local:2") == 0
    assert run("kernels", "config.toml", "-o", (folder / "k.zarr").as_uri()) == 0
    assert run("info", where, "--verify") == 0
    assert "every checksum right" in capsys.readouterr().out
    assert run("train", where, "-o", "far") == 0
    assert run("train", "k.zarr", "-o", "near") == 0
    assert_same_model(folder / "far", folder / "near")
    assert run("train", where) == 0
    assert (folder / "runs/photos/model.zarr.zip").exists()
    assert run("train", "config.toml", "-o", "named", "-s", f"run.store={where}", "--cluster", "local:2") == 0
    assert_same_model(folder / "named", folder / "near")
    assert json.loads((folder / "named/manifest.json").read_text())["store"] == where
    capsys.readouterr()
    assert run("submit", where, "-o", "job", "--cluster", "slurm", "--dry-run") == 0
    assert f"dmkl train {where} -o " in capsys.readouterr().out
    flipped(KernelStore(where), 0, 1)
    assert run("info", where, "--verify") == 5
    assert f"{where}/gram/c/0/0/1" in capsys.readouterr().out
    written = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    written += [content(place_of(where), name) for name in place_of(where).names("")]
    assert not any(SECRET.encode() in text or b"someone" in text for text in written)


def test_computed_kernels_may_be_at_a_url(server: Server, folder: Path) -> None:
    where = f"s3://bucket/{folder.name}/computed.zarr"
    options = "-s", "run.kernels=compute"
    assert run("train", "config.toml", "-o", "far", "-s", f"run.store={where}", *options) == 0
    assert run("train", "config.toml", "-o", "near", *options) == 0
    assert_same_model(folder / "far", folder / "near")
    assert place_of(where).names("gram") == set()


def refused(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> tuple[str, str]:
    """The two lines that a command says in place of its work, within seconds."""
    capsys.readouterr()
    started = time.monotonic()
    assert run(*arguments) == code
    assert time.monotonic() - started < 5
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith(("error: ", "hint: "))]
    assert len(lines) == 2
    return lines[0], lines[1]


@pytest.mark.usefixtures("folder", "impatient")
def test_refusals_are_two_lines(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def kernels(where: str, code: int = 5) -> tuple[str, str]:
        return refused(capsys, code, "kernels", "config.toml", "-o", where)

    error, hint = kernels("s3://wrong/k.zarr")
    assert error == "error: cannot read s3://wrong/k.zarr: there is no such bucket"
    assert "correct the URL" in hint
    error, _ = refused(capsys, 5, "train", "s3://bucket/nothing/k.zarr")
    assert error == "error: no kernel store at s3://bucket/nothing/k.zarr"
    for where, what in (
        (f"s3://someone:{SECRET}@bucket/k.zarr", "more than bucket and path"),
        ("s3://", "names no bucket"),
        ("ftp://bucket/k.zarr", "cannot be at ftp://"),
        ("memory://k.zarr", "would end with this process"),
    ):
        error, hint = kernels(where, 2)
        assert what in error
        assert SECRET not in error + hint
    for command in (("train", "memory://k"), ("train", "config.toml", "-s", "run.store=memory://k")):
        assert "would end with this process" in refused(capsys, 2, *command)[0]
    for command in ("train", "config.toml"), ("submit", "config.toml", "--cluster", "slurm"):
        error, _ = refused(capsys, 2, *command, "-o", "s3://bucket/run")
        assert error == "error: a run directory is a local folder, not s3://bucket/run"
    error, _ = refused(capsys, 2, "train", "config.toml", "-s", f"run.store=s3://someone:{SECRET}@bucket/k")
    assert "more than bucket and path" in error
    assert not Path("runs").exists()
    with contextlib.closing(socket.socket()) as silent:  # bound, and not listening
        silent.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        error, hint = kernels("s3://bucket/k.zarr")
        assert error == "error: cannot read s3://bucket/k.zarr: the server does not answer"
        assert "AWS_ENDPOINT_URL" in hint
        silent.listen()  # and never answers
        monkeypatch.setattr(places, "CONNECTIONS", ConnectionOptions(answer=0.5, patience=1, tries=1))
        assert "the server does not answer" in kernels("s3://bucket/k.zarr")[0]
    monkeypatch.setenv("AWS_ALLOW_HTTP", "false")
    error, hint = kernels("s3://bucket/k.zarr")
    assert "https" in error
    assert "AWS_ALLOW_HTTP=true" in hint
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nonsense")
    assert kernels("s3://bucket/k.zarr", 2)[0] == "error: AWS_ENDPOINT_URL in the environment is no URL"
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    monkeypatch.setitem(sys.modules, "obstore", None)
    error, hint = kernels("s3://bucket/k.zarr", 2)
    assert error == "error: s3://bucket/k.zarr needs the package obstore, which is not installed"
    assert hint == "hint: pip install 'dmkl[cloud]'"


@pytest.mark.parametrize("answer", ["403", "401", "503", "404"])
@pytest.mark.usefixtures("impatient")
def test_answers_are_quoted_by_their_code_alone(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """The body of an answer can hold the request with the name of the key."""
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    code = {"403": "InvalidAccessKeyId", "404": "NoSuchBucket"}.get(answer, "SlowDown")

    class Refuse(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"<Error><Code>{code}</Code><AWSAccessKeyId>{SECRET}</AWSAccessKeyId></Error>".encode()
            self.send_response(int(answer))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Refuse) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        for name, value in {"ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "ALLOW_HTTP": "true"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", SECRET)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        place = place_of("s3://bucket/k.zarr")
        try:
            with pytest.raises(UnreachableStore) as reading:
                KernelStore(place)
            with pytest.raises(OutputError) as writing:
                place.write("a", b"b")
        finally:
            server.shutdown()
            thread.join()
    said = {"401": "access is refused", "403": "access is refused", "404": "no such bucket", "503": "answers 503"}
    for refusal in (reading.value, writing.value):
        assert said[answer] in refusal.message
        assert SECRET not in str(refusal)
        assert refusal.__cause__ is None


@pytest.mark.usefixtures("impatient")
def test_a_run_goes_on_when_the_server_is_back(
    server: Server, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_working_sets(monkeypatch, start=10, least_growth=10)
    monkeypatch.setattr("dmkl.stack.tiles.SHARES", MemoryShares(here=0.0, some=0.0))  # every pass fetches
    where = f"s3://bucket/{tmp_path.name}/k.zarr"
    built(where, data)
    table = {"data": {"path": "gone.npz"}, "kernels": [{"kernel": "linear"}], "formulation": {"name": "vskl", "C": 10}}
    config = parse_config({**table, "solve": {"tol": 1e-6}})

    def train(out: str, observer: Callable[[Event], None] = lambda event: None) -> None:
        run = RunDirectory(tmp_path / out)
        train_run(RunContext(config, run, Local(1), Budget.default(), KernelStore(where), observer=observer))

    rounds: list[Event] = []

    def cut(event: Event) -> None:
        if isinstance(event, RoundDone):
            rounds.append(event)
            if len(rounds) == 1:
                server.stop()

    train("calm")
    try:
        with pytest.raises(UnreachableStore, match="the server does not answer"):
            train("cut", cut)
    finally:
        server.start()
    assert len(rounds) == 1
    train("cut", rounds.append)
    assert_same_model(tmp_path / "calm", tmp_path / "cut")


@pytest.mark.usefixtures("impatient")
def test_what_is_held_needs_no_server(server: Server, data: Dataset, store: KernelStore, tmp_path: Path) -> None:
    mine = built(f"s3://bucket/{tmp_path.name}/k.zarr", data)
    stack = open_stack(mine)
    server.stop()
    try:
        fit = dmkl.solve(stack, data.labels, VSKL)
    finally:
        server.start()
    assert np.array_equal(fit.coef, dmkl.solve(open_stack(store), data.labels, VSKL).coef)


def test_estimators_take_urls(remote: KernelStore, store: KernelStore) -> None:
    far, near = (VSKLClassifier(C=10).fit(where) for where in (str(remote.place), store.path))
    assert np.array_equal(far.kernel_weights_, near.kernel_weights_)


def test_urls_and_paths() -> None:
    assert isinstance(place_of("file:///data/a%20b.zarr"), Folder)
    assert str(place_of("file:///data/a%20b.zarr")) == "/data/a b.zarr"
    assert str(place_of("memory://bucket/k.zarr/")) == "memory://bucket/k.zarr"
    assert place_of("memory://bucket/k.zarr").stem == "k"
    with pytest.raises(ConfigError, match="a URL was made a Path"):
        place_of(Path("s3://bucket/k.zarr"))
    config = parse_config({"data": {"path": "d.npz"}, "kernels": [{"kernel": "linear"}], "run": {"store": "s3://b/k"}})
    assert config.run.store == "s3://b/k"
    place_of("memory://k").check_space(1 << 60)  # nobody knows
