"""Malicious files: each is refused in one line, quickly, without running anything and within little memory.

Every case is a real file, or a real store, model, run or checkpoint with one change.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import shutil
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import three_classes
from hypothesis import given, settings
from hypothesis import strategies as st

import dmkl
from dmkl.cli.main import main
from dmkl.config import KernelConfig, parse_config, read_config
from dmkl.data import Dataset, make_labels, make_view, read_arrays
from dmkl.data.sample_sets import SampleSets
from dmkl.errors import ConfigError, DmklError, ResourceError, StoreError
from dmkl.kernels import plan_bank
from dmkl.model import Model, load_model, make_model, save_model
from dmkl.run import RunDirectory, run_status, stored_config
from dmkl.runtime.jobs.profile import read_profile
from dmkl.solvers.state import DIGEST, State, load_state, save_state
from dmkl.stack import open_stack
from dmkl.store import KernelStore

HUGE = 2**62
Header = dict[str, Any]
Change = Callable[[Header], None]


class Bomb:
    """Unpickling this object makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "executed"
    assert not (tmp_path / "executed").exists()


@contextmanager
def little_memory(real: int = 0) -> Iterator[None]:
    """The body may not take more than 20 MB, or three times the `real` bytes."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < max(20e6, 3 * real), f"{peak / 1e6:,.0f} MB"


def refused(call: Callable[[], Any], real: int = 0, *, kind: type[DmklError] = DmklError) -> str:
    """The message with which a call is refused."""
    with little_memory(real), pytest.raises(kind) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def model(store: KernelStore) -> Model:
    return make_model(store, dmkl.solve(open_stack(store.path), store.labels, dmkl.UniformMKL(C=1.0)))


@pytest.fixture(scope="module")
def members(model: Model, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A model file's members."""
    path = tmp_path_factory.mktemp("model") / "model.zarr.zip"
    save_model(path, model)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def edited(members: dict[str, bytes], name: str, change: Change) -> dict[str, bytes]:
    """The members with one JSON file changed."""
    header = json.loads(members[name])
    change(header)
    return {**members, name: json.dumps(header).encode()}


def copied(store: KernelStore, folder: Path) -> Path:
    return Path(shutil.copytree(store.path, folder / "k.zarr"))


def rewrite(path: Path, change: Change) -> None:
    header = json.loads(path.read_text())
    change(header)
    path.write_text(json.dumps(header))


# --- models


def attribute(*keys: Any, value: Any) -> Change:
    """Change one entry of the header that dmkl wrote."""

    def change(header: Header) -> None:
        target = header["attributes"]["dmkl"]
        for key in keys[:-1]:
            target = target[key]
        target[keys[-1]] = value

    return change


def field(*keys: str, value: Any) -> Change:
    """Change one entry of an array's metadata."""

    def change(header: Header) -> None:
        target = header
        for key in keys[:-1]:
            target = target[key]
        target[keys[-1]] = value

    return change


HEADERS: dict[str, Change] = {
    "unknown kernel": attribute("kernels", 0, "kernel", value="os.system"),
    "kernel that is no name": attribute("kernels", 0, "kernel", value=["rbf"]),
    "parameters of another": attribute("kernels", 0, "params", value={"command": "true"}),
    "negative width": attribute("kernels", 0, "params", "width", value=-1.0),
    "width that is text": attribute("kernels", 0, "params", "width", value="1 median"),
    "degree without end": lambda h: h["attributes"]["dmkl"]["kernels"][0].update(
        kernel="poly", params={"degree": HUGE, "gamma": 1.0, "coef0": 1.0}
    ),
    "normaliser unknown": attribute("kernels", 0, "normalise", value=["eval"]),
    "no kernels": attribute("kernels", value=[]),
    "one kernel less": lambda h: h["attributes"]["dmkl"]["kernels"].pop(),
    "kernels that are a number": attribute("kernels", value=7),
    "view that is not there": attribute("kernels", 0, "view", value="../../etc/passwd"),
    "n too small": attribute("n", value=3),
    "n a float": attribute("n", value=1e300),
    "node outside": attribute("dataset", "views", 0, "node", value="../../evil"),
    "view of absurd shape": attribute("dataset", "views", 0, "shape", value=[HUGE, HUGE]),
    "view of negative shape": attribute("dataset", "views", 0, "shape", value=[-1, 5]),
    "view that is sparse": attribute("dataset", "views", 0, "sparse", value=True),
    "view of another kind": attribute("dataset", "views", 0, "kind", value="kernel"),
    "no views": attribute("dataset", value=None),
    "unknown task": attribute("task", value="exec"),
    "classes missing": attribute("classes", value=["0"]),
    "classes that are no text": attribute("classes", value=[0, 1, [2]]),
    "widths": attribute("about", "widths", value={"points": "5", "words": HUGE}),
    "about": attribute("about", value=[]),
    "per kernel": attribute("per_kernel", value=True),
    "another schema": attribute("schema", value=[1]),
    "no header": lambda h: h["attributes"].clear(),
    "attributes no table": field("attributes", value=3),
    "format": field("zarr_format", value=9),
}
ARRAYS: dict[str, Change] = {
    "absurd shape": field("shape", value=[HUGE, 3]),
    "more samples": field("shape", value=[10**9, 3]),
    "negative shape": field("shape", value=[-5, 3]),
    "float shape": field("shape", value=[1.5e9, 3]),
    "no shape": field("shape", value=[]),
    "billion chunks": lambda h: h.update(
        shape=[10**9, 10**9], chunk_grid={"name": "regular", "configuration": {"chunk_shape": [1, 1]}}
    ),
    "absurd chunk": field("chunk_grid", "configuration", "chunk_shape", value=[HUGE, HUGE]),
    "chunks of nothing": field("chunk_grid", "configuration", "chunk_shape", value=[0, 0]),
    "objects": field("data_type", value="object"),
    "text": field("data_type", value="string"),
    "complex": field("data_type", value="complex128"),
    "other width": field("data_type", value="float32"),
    "integers": field("data_type", value="int64"),
    "pickle codec": field("codecs", value=[{"name": "numcodecs.pickle", "configuration": {}}]),
    "compressed": lambda h: h["codecs"].append({"name": "gzip", "configuration": {"level": 1}}),
    "no codecs": field("codecs", value=[]),
    "codec unknown": field("codecs", value=[{"name": "../../evil.py"}]),
    "keys elsewhere": field("chunk_key_encoding", value={"name": "v2", "configuration": {"separator": "."}}),
    "not an array": field("node_type", value="group"),
}


def load(path: Path) -> Callable[[], Model]:
    return lambda: load_model(path)


@pytest.mark.parametrize("case", HEADERS)
def test_models_with_a_wrong_header(case: str, members: dict[str, bytes], tmp_path: Path) -> None:
    path = zipped(tmp_path / "m.zip", edited(members, "zarr.json", HEADERS[case]))
    refused(load(path), path.stat().st_size, kind=StoreError)


@pytest.mark.parametrize("case", ARRAYS)
def test_models_with_wrong_arrays(case: str, members: dict[str, bytes], tmp_path: Path) -> None:
    for name in ("coef", "views/0/values"):
        path = zipped(tmp_path / "m.zip", edited(members, f"{name}/zarr.json", ARRAYS[case]))
        refused(load(path), path.stat().st_size, kind=StoreError)


def with_array(model: Model, path: Path, **arrays: Any) -> Path:
    import dataclasses

    save_model(path, dataclasses.replace(model, **arrays))
    return path


def test_models_whose_arrays_do_not_fit_each_other(model: Model, tmp_path: Path) -> None:
    nan = model.coef.copy()
    nan[0, 0] = np.nan
    for number, arrays in enumerate(
        [
            {"coef": model.coef[:-1]},
            {"coef": model.coef[:, :2]},
            {"coef": nan},
            {"weights": model.weights[:, :-1]},
            {"scales": model.scales[None]},
            {"shift": np.full(3, np.inf)},
            {"intercept": model.intercept[:1]},
            {"samples": model.samples[::-1].copy()},
            {"samples": model.samples + 10**9},
            {"samples": np.zeros_like(model.samples)},
            {"samples": model.samples.astype(float)},
        ]
    ):
        path = with_array(model, tmp_path / f"{number}.zip", **arrays)
        assert "is not a readable model" in refused(load(path), kind=StoreError)


def test_zips_that_lie(members: dict[str, bytes], tmp_path: Path) -> None:
    outside = zipped(tmp_path / "outside.zip", {**members, "../../evil": b"x"})
    absolute = zipped(tmp_path / "absolute.zip", {**members, "/etc/evil": b"x"})
    backslash = zipped(tmp_path / "backslash.zip", {**members, "..\\evil": b"x"})
    for path in (outside, absolute, backslash):
        assert "has a path outside the archive" in refused(load(path), kind=StoreError)
    link = zipfile.ZipInfo("coef/c/9")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(shutil.copy(zipped(tmp_path / "a.zip", members), tmp_path / "link.zip"), "a") as archive:
        archive.writestr(link, "/etc/passwd")
    assert "is a link" in refused(load(tmp_path / "link.zip"), kind=StoreError)
    with (
        zipfile.ZipFile(shutil.copy(tmp_path / "a.zip", tmp_path / "twice.zip"), "a") as archive,
        pytest.warns(UserWarning, match="Duplicate name"),
    ):
        archive.writestr("coef/c/0/0", b"x")
    assert "appears twice" in refused(load(tmp_path / "twice.zip"), kind=StoreError)
    bomb = zipped(tmp_path / "bomb.zip", {**members, "coef/c/0/0": bytes(50_000_000)}, zipfile.ZIP_DEFLATED)
    assert "compressed in an unexpected way" in refused(load(bomb), kind=StoreError)
    raw = bytearray((tmp_path / "a.zip").read_bytes())
    for place in range(len(raw)):  # the directory claims more than there is
        if raw[place : place + 4] == b"PK\x01\x02":
            raw[place + 24 : place + 28] = (2**31).to_bytes(4, "little")
    (tmp_path / "claims.zip").write_bytes(raw)
    assert "but can hold at most" in refused(load(tmp_path / "claims.zip"), kind=StoreError)


def test_what_is_no_model(members: dict[str, bytes], tmp_path: Path, mark: Path) -> None:
    for name, data in {
        "pickle": pickle.dumps(Bomb(mark)),
        "nothing": b"",
        "cut": zipped(tmp_path / "whole.zip", members).read_bytes()[:-100],
        "middle": zipped(tmp_path / "whole.zip", members).read_bytes()[3000:],
    }.items():
        (tmp_path / name).write_bytes(data)
        refused(load(tmp_path / name), kind=StoreError)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        assert "no model at" in refused(load(tmp_path / name))
    nested = {**members, "zarr.json": b"[" * 100_000}
    refused(load(zipped(tmp_path / "deep.zip", nested)), kind=StoreError)


@settings(max_examples=150)
@given(
    cut=st.booleans(), place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255), where=st.integers(0, 10**6)
)
def test_any_byte_of_a_model_may_be_wrong(
    members: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory, cut: bool, place: float, flip: int, where: int
) -> None:
    """The bytes are changed in a member, so that the checksums of the zip file still hold, or anywhere in the file."""
    path = tmp_path_factory.getbasetemp() / "fuzz.zip"
    if where % 2:
        names = [name for name in members if name.endswith("zarr.json")]
        name = names[where % len(names)]
        data = members[name]
        at = int(place * len(data))
        data = data[:at] if cut else data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
        zipped(path, {**members, name: data})
    else:
        raw = zipped(path, members).read_bytes()
        at = int(place * len(raw))
        path.write_bytes(raw[:at] if cut else raw[:at] + bytes([raw[at] ^ flip]) + raw[at + 1 :])
    with_model_or_refusal(load(path))


def with_model_or_refusal(call: Callable[[], Any]) -> None:
    said = ""
    try:
        call()
    except DmklError as error:
        said = str(error)
    assert "\n" not in said


# --- stores


STORES = {
    **{case: HEADERS[case] for case in HEADERS if case not in ("no views", "n too small", "n a float")},
    "billion samples": attribute("n", value=10**9),
    "billion samples in the views too": lambda h: (
        attribute("n", value=10**9)(h),
        [v.update(shape=[10**9, v["shape"][1]]) for v in h["attributes"]["dmkl"]["dataset"]["views"]],
    )[0],
    "n a float": attribute("n", value=150.0),
    "tiles of nothing": attribute("tile", value=0),
    "tiles of one": attribute("tile", value=1),
    "tiles too large": attribute("tile", value=HUGE),
    "tile a text": attribute("tile", value="40"),
    "all tiles": attribute("full", value=True),
    "no config": attribute("config", value=[]),
    "labels of another task": attribute("dataset", "labels", "task", value="multilabel"),
    "class less": attribute("dataset", "labels", "classes", value=["0", "1"]),
    "kernels doubled": lambda h: h["attributes"]["dmkl"]["kernels"].extend(h["attributes"]["dmkl"]["kernels"][:1]),
}
for case in ("unknown task", "classes missing", "classes that are no text", "widths", "about", "per kernel"):
    del STORES[case]  # a store has no such entries


def use(path: Path) -> Callable[[], Any]:
    """Open a store and read all that a run would read of it."""

    def call() -> None:
        store = KernelStore(path)
        open_stack(path)
        for name, entry in store.views.entries.items():
            if entry["kind"] == "features":
                store.views.take(name, np.arange(store.n), store.grid.tile)

    return call


@pytest.mark.parametrize("case", STORES)
def test_stores_with_a_wrong_header(case: str, store: KernelStore, tmp_path: Path) -> None:
    path = copied(store, tmp_path)
    rewrite(path / "zarr.json", STORES[case])
    refused(use(path), store.nbytes)


@pytest.mark.parametrize("case", [case for case in ARRAYS if case != "other width"])
@pytest.mark.parametrize("name", ["gram", "labels", "row_means", "views/0/values"])
def test_stores_with_wrong_arrays(case: str, name: str, store: KernelStore, tmp_path: Path) -> None:
    if (case, name) == ("integers", "labels"):
        pytest.skip("that is what they are")
    path = copied(store, tmp_path)
    rewrite(path / name / "zarr.json", ARRAYS[case])
    refused(use(path), store.nbytes, kind=StoreError)


def test_tiles_that_are_something_else(store: KernelStore, tmp_path: Path) -> None:
    path = copied(store, tmp_path)
    tile = KernelStore(path).tile_path(0, 1)
    kept = tile.read_bytes()

    def link_to(target: str) -> None:
        tile.symlink_to(target)

    for make in (
        lambda: os.mkfifo(tile),
        tile.mkdir,
        lambda: link_to("/dev/zero"),
        lambda: link_to(str(tile.with_name("2"))),
        lambda: tile.write_bytes(kept[:-1]),
        lambda: tile.write_bytes(kept[:-20] + b"\xff" * 20),  # the index: places without end
        lambda: tile.write_bytes(bytes(len(kept))),
    ):
        tile.unlink()
        make()
        assert "tile (0, 1) of kernel" in refused(lambda: KernelStore(path).read_tile(0, 0, 1), kind=StoreError)
        if tile.is_dir():
            tile.rmdir()
            tile.touch()


def test_parts_of_a_store_that_are_pipes_or_links(store: KernelStore, tmp_path: Path) -> None:
    for number, name in enumerate(
        [
            "zarr.json",
            "labels/zarr.json",
            "labels/c/0",
            "views/0/values/c/0/0",
            "views/0/values/c/1/0",
            "gram/zarr.json",
        ]
    ):
        for kind in ("pipe", "link", "missing"):
            path = Path(shutil.copytree(store.path, tmp_path / f"{number}-{kind}.zarr"))
            part = path / name
            part.unlink()
            if kind == "pipe":
                os.mkfifo(part)
            elif kind == "link":
                part.symlink_to("/dev/zero")
            refused(use(path), store.nbytes, kind=StoreError)


def test_a_store_does_not_say_where_to_run(store: KernelStore, tmp_path: Path) -> None:
    """Otherwise opening a store could run its job script or connect to its scheduler."""
    config = {
        "data": {"example": "digits"},
        "kernels": [{"kernel": "rbf"}],
        "run": {"cluster": "slurm", "memory": "1 GB"},
        "cluster": {"job_script_prologue": ["touch executed"], "insecure": True},
    }
    path = copied(store, tmp_path)
    rewrite(path / "zarr.json", attribute("config", value=config))
    found = stored_config(KernelStore(path), {})
    assert (found.run.cluster, found.cluster, found.run.memory) == ("none", {}, "1 GB")


@settings(max_examples=100)
@given(cut=st.booleans(), place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255), which=st.integers(0, 5))
def test_any_byte_of_a_stores_metadata_may_be_wrong(
    store: KernelStore, tmp_path_factory: pytest.TempPathFactory, cut: bool, place: float, flip: int, which: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.zarr"
    if not path.exists():
        shutil.copytree(store.path, path)
    names = ["zarr.json", "gram/zarr.json", "labels/zarr.json", "row_means/zarr.json", "views/0/values/zarr.json"]
    name = [*names, "views/1/values/zarr.json"][which]
    data = (store.path / name).read_bytes()
    at = int(place * len(data))
    (path / name).write_bytes(data[:at] if cut else data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])
    with_model_or_refusal(use(path))
    (path / name).write_bytes(data)


# --- data


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def described(shape: Any, kind: str = "<f8") -> str:
    return repr({"descr": kind, "fortran_order": False, "shape": shape})


NPY = {
    "absurd shape": npy(described((HUGE,))),
    "larger than the file": npy(described((10**11,)), bytes(64)),
    "larger than the file, though it would fit": npy(described((2, 10**7)), bytes(64)),
    "negative shape": npy(described((-8, -8)), bytes(512)),
    "float shape": npy(described((8.0,)), bytes(64)),
    "objects": npy(described((8,), "|O"), bytes(64)),
    "code": npy("__import__('os').system('true')"),
    "deep": npy("(" * 9000),
    "long header": b"\x93NUMPY\x02\x00" + (2**31).to_bytes(4, "little") + b"{" * 64,
    "absurd type": npy(described((1,), "<f99999999999")),
}


@pytest.mark.parametrize("case", NPY)
def test_npy_and_npz(case: str, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(NPY[case])
    refused(lambda: read_arrays(tmp_path / "x.npy"))
    zipped(tmp_path / "x.npz", {"x.npy": NPY[case]})
    refused(lambda: read_arrays(tmp_path / "x.npz"))


def test_npz_pickles_and_lies(tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "objects.npz", X=np.array([Bomb(mark)], dtype=object))
    assert "pickles are never loaded" in refused(lambda: read_arrays(tmp_path / "objects.npz"))
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(Bomb(mark)))
    assert "is not a valid .npz file" in refused(lambda: read_arrays(tmp_path / "pickle.npz"))
    good = npy(described((8,)), bytes(64))
    for member in ("../../evil.npy", "/tmp/evil.npy", "C:/evil.npy"):
        path = zipped(tmp_path / "outside.npz", {member: good})
        assert "has a path outside the archive" in refused(lambda path=path: read_arrays(path))
    path = zipped(tmp_path / "twice.npz", {"x.npy": good, "x": good})
    assert "appears twice" in refused(lambda: read_arrays(path))
    bomb = zipped(tmp_path / "bomb.npz", {"x.npy": npy(described((10**7,)), bytes(8 * 10**7))}, zipfile.ZIP_DEFLATED)
    monkeypatch.setattr("dmkl._util.machine.available", lambda: 10**7)  # here it would fit
    assert "would take 80 MB, 10 MB are free" in refused(lambda: read_arrays(bomb))


def test_data_that_are_pipes_or_devices(tmp_path: Path) -> None:
    for suffix in (".npz", ".npy", ".csv", ".tsv", ".parquet", ".svmlight", ".mat"):
        os.mkfifo(tmp_path / f"pipe{suffix}")
        (tmp_path / f"device{suffix}").symlink_to("/dev/zero")
        for name in ("pipe", "device"):
            said = refused(lambda name=name, suffix=suffix: read_arrays(tmp_path / f"{name}{suffix}"))
            assert "is a pipe or a device" in said


def test_text_of_absurd_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sklearn.datasets  # noqa: F401  (its modules take memory too)

    def written(name: str, text: str) -> Callable[[], Any]:
        (tmp_path / name).write_text(text)
        return lambda: read_arrays(tmp_path / name)

    columns = 200_000
    wide = ",".join(f"c{k}" for k in range(columns)) + "\n"
    refused(written("wide.csv", wide + "1,2\n"), 40 * len(wide))
    refused(written("twice.csv", wide.replace("c7,", "c8,") + "1\n"), 40 * len(wide))
    refused(written("long.csv", "a,b\n" + "x" * 10**6 + ",1\n"))
    refused(written("nul.csv", "a,b\n\0,\0\n\0"))
    refused(written("x.svmlight", "1 1:1\n-1 1000000000000:1\n"))
    for text in ("1 -5:1\n", "1 0:1 0:1\n", "1 1:\n", "nonsense 1:1\n", "1 99999999999999999999999999:1\n"):
        refused(written("x.svmlight", text))
    monkeypatch.setattr("dmkl._util.machine.available", lambda: 10**6)
    many = "".join(f"{2 * k},{2 * k + 1} 1:1\n" for k in range(2000))
    assert "would take 8 MB" in refused(written("many.svmlight", many), 100 * len(many))


def test_features_without_number(tmp_path: Path) -> None:
    """Two samples of two billion features: kernels of the few nonzero values work, dense kernels are refused."""
    (tmp_path / "x.svmlight").write_text("1 1:1\n-1 2000000000:1\n" * 8)
    arrays = read_arrays(tmp_path / "x.svmlight")
    data = Dataset({"X": make_view("X", "features", arrays["X"])}, make_labels(arrays["y"]))
    bank = plan_bank([KernelConfig("rbf"), KernelConfig("linear")], data)
    assert bank.kernels[0].function.width == pytest.approx(np.sqrt(2))
    for kernel in ("laplacian", "chi2", "kl"):
        said = refused(lambda kernel=kernel: plan_bank([KernelConfig(kernel)], data), kind=ResourceError)
        assert "16 samples of 2,000,000,000 features would take" in said


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"a": np.zeros(10**6)}), path)
    assert path.stat().st_size < 10_000
    whole = path.read_bytes()
    monkeypatch.setattr("dmkl._util.machine.available", lambda: 10**6)
    assert "would take 8 MB, 1 MB are free" in refused(lambda: read_arrays(path))
    for cut in (10, len(whole) // 2, len(whole) - 9):
        path.write_bytes(whole[:cut] + whole[-8:])
        refused(lambda: read_arrays(path))


def test_a_mat_file_may_crash_its_parser(tmp_path: Path, rng: np.random.Generator) -> None:
    """scipy's reader may crash on a damaged file: it is run in a child process."""
    from scipy.io import savemat

    path = tmp_path / "x.mat"
    savemat(path, {"X": rng.normal(size=(20, 5)), "S": scipy.sparse.random(30, 30, 0.1, "csc", rng=rng)})
    raw = path.read_bytes()
    for _ in range(6):
        damaged = bytearray(raw)
        damaged[rng.integers(128, 400)] ^= rng.integers(1, 256)
        path.write_bytes(damaged)
        with_model_or_refusal(lambda: read_arrays(path))


def test_a_parser_that_crashes_or_is_greedy_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.mat").write_bytes(b"x" * 200)
    child = tmp_path / "child.py"
    monkeypatch.setattr("dmkl.data.readers.matlab.matlab_child.__file__", str(child))
    child.write_text("import os; os.kill(os.getpid(), 11)")
    assert "its parser ended with -11" in refused(lambda: read_arrays(tmp_path / "x.mat"))


def test_zarr_folders(tmp_path: Path, mark: Path) -> None:
    import zarr

    def made(change: Change) -> Callable[[], Any]:
        path = tmp_path / "x.zarr"
        shutil.rmtree(path, ignore_errors=True)
        group = zarr.open_group(path, mode="w")
        group.create_array("X", data=np.ones((8, 3)), chunks=(4, 3), compressors=None)
        rewrite(path / "X/zarr.json", change)
        return lambda: read_arrays(path)

    for case, change in ARRAYS.items():
        if case not in ("integers", "keys elsewhere", "more samples", "no shape"):  # a foreign array may be like that
            refused(made(change))
    refused(made(ARRAYS["billion chunks"]))
    call = made(
        lambda h: h.update(shape=[10**8], chunk_grid={"name": "regular", "configuration": {"chunk_shape": [1]}})
    )
    assert "has 100,000,000 chunks" in refused(call)
    call = made(lambda h: None)
    chunk = tmp_path / "x.zarr/X/c/0/0"
    chunk.write_bytes(pickle.dumps(Bomb(mark)))
    refused(call)
    chunk.unlink()
    os.mkfifo(chunk)
    assert "is not a regular file" in refused(call)


# --- new data, which dmkl predict reads in slices


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Run directories of models of three features: of one array, and of columns of a table."""
    data = three_classes(60)
    assert data.labels is not None
    X = np.asarray(data.views["points"].values)[:, :3]
    found = {}
    for kind, view, arrays in (
        ("array", 'array = "X"', {"X": X}),
        ("table", 'columns = ["x*"]', {f"x{j}": column for j, column in enumerate(X.T)}),
    ):
        folder = tmp_path_factory.mktemp(kind)
        np.savez(folder / "d.npz", y=data.labels.values, **arrays)
        (folder / "c.toml").write_text(
            f'[data]\npath = "d.npz"\n[views.all]\n{view}\n'
            '[[kernels]]\nkernel = "rbf"\n[formulation]\nname = "uniform"\n'
        )
        found[kind] = folder / "run"
        assert main(["train", str(folder / "c.toml"), "-o", str(found[kind]), "-q"]) == 0
    return found


Unpredicted = Callable[[Path], str]


@pytest.fixture
def unpredicted(runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Unpredicted:
    """The message with which dmkl predict refuses a file; nothing is written and little is read."""

    def call(path: Path) -> str:
        run = runs["table" if path.suffix in (".csv", ".tsv", ".parquet") else "array"]
        for output in ("out.csv", "out.parquet", "out.npz"):
            with little_memory(40 * path.stat().st_size if path.is_file() else 0):
                assert main(["predict", str(run), str(path), "-o", str(tmp_path / output)]) in (4, 6)
            said = capsys.readouterr().err
            assert "internal error" not in said
            assert said.startswith("error: ")
            assert said.count("\n") == 2
            assert not list(tmp_path.glob("*out.*"))
        return said

    return call


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose memory is nearly used up."""
    monkeypatch.setattr("dmkl._util.machine.available", lambda: 10**4)


def test_good_new_data_are_predicted(runs: dict[str, Path], tmp_path: Path) -> None:
    """A check that the refusals below have no other cause."""
    np.savez_compressed(tmp_path / "x.npz", X=np.ones((9, 3)))
    (tmp_path / "x.csv").write_text("x0,x1,x2\n" + "1,2,3\n" * 9)
    for kind, suffix in (("array", "npz"), ("table", "csv")):
        data, output = str(tmp_path / f"x.{suffix}"), str(tmp_path / f"out.{suffix}")
        assert main(["predict", str(runs[kind]), data, "-o", output, "-q"]) == 0


@pytest.mark.parametrize("case", NPY)
def test_new_npy_and_npz(case: str, tmp_path: Path, unpredicted: Unpredicted) -> None:
    (tmp_path / "X.npy").write_bytes(NPY[case])
    unpredicted(tmp_path / "X.npy")
    unpredicted(zipped(tmp_path / "x.npz", {"X.npy": NPY[case]}))
    beside = {"X.npy": npy(described((8, 3)), bytes(192)), "other.npy": NPY[case]}
    unpredicted(zipped(tmp_path / "beside.npz", beside, zipfile.ZIP_DEFLATED))


def test_new_npz_pickles_and_lies(tmp_path: Path, mark: Path, unpredicted: Unpredicted, full: None) -> None:
    np.savez(tmp_path / "objects.npz", X=np.array([Bomb(mark)] * 3, dtype=object))
    np.savez(tmp_path / "beside.npz", X=np.ones((8, 3)), other=np.array([Bomb(mark)] * 8, dtype=object))
    for name in ("objects", "beside"):
        assert "pickles are never loaded" in unpredicted(tmp_path / f"{name}.npz")
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(Bomb(mark)))
    assert "is not a valid .npz file" in unpredicted(tmp_path / "pickle.npz")
    good = npy(described((8, 3)), bytes(192))
    outside = zipped(tmp_path / "outside.npz", {"X.npy": good, "../../evil.npy": good})
    assert "has a path outside the archive" in unpredicted(outside)
    assert "appears twice" in unpredicted(zipped(tmp_path / "twice.npz", {"X.npy": good, "X": good}))
    for name, bomb in {
        "wide": {"X.npy": npy(described((2, 10**5)), bytes(16 * 10**5))},
        "beside": {"X.npy": good, "other.npy": npy(described((10**5,)), bytes(8 * 10**5))},
    }.items():
        said = unpredicted(zipped(tmp_path / f"{name}.npz", bomb, zipfile.ZIP_DEFLATED))
        assert "MB are free" in said


def test_new_data_that_are_pipes_or_devices(tmp_path: Path, unpredicted: Unpredicted) -> None:
    for suffix in (".npz", ".npy", ".csv", ".tsv", ".parquet", ".svmlight", ".mat"):
        os.mkfifo(tmp_path / f"pipe{suffix}")
        (tmp_path / f"device{suffix}").symlink_to("/dev/zero")
        for name in ("pipe", "device"):
            assert "is a pipe or a device" in unpredicted(tmp_path / f"{name}{suffix}")


def test_new_text_of_absurd_sizes(tmp_path: Path, unpredicted: Unpredicted) -> None:
    columns = 100_000
    wide = "x0,x1,x2," + ",".join(f"c{k}" for k in range(columns)) + "\n"
    for name, text in {
        "wide.csv": wide + "1,2,3\n",
        "twice.csv": wide.replace("c7,", "c8,") + "1\n",
        "long.csv": "x0,x1,x2\n1,2," + "x" * 10**6 + "\n",
        "open.csv": 'x0,x1,x2\n1,2,3\n1,2,"' + "3,\n" * 10**6,
        "nul.tsv": "x0\tx1\tx2\n\0\t\0\t\0\n\0",
        "features.svmlight": "1 1:1\n-1 1000000000000:1\n",
        "negative.svmlight": "1 -5:1\n",
        "many.svmlight": "1 1:1\n-1 2000000000:1\n",
    }.items():
        (tmp_path / name).write_text(text)
        unpredicted(tmp_path / name)


def test_new_parquet(tmp_path: Path, unpredicted: Unpredicted, full: None) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.table({f"x{j}": np.zeros(10**6) for j in range(3)}), path)
    assert path.stat().st_size < 30_000
    whole = path.read_bytes()
    assert "MB are free" in unpredicted(path)
    for cut in (10, len(whole) // 2, len(whole) - 9):
        path.write_bytes(whole[:cut] + whole[-8:])
        unpredicted(path)


def test_a_new_mat_file_whose_parser_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpredicted: Unpredicted
) -> None:
    (tmp_path / "x.mat").write_bytes(b"x" * 200)
    unpredicted(tmp_path / "x.mat")
    child = tmp_path / "child.py"
    monkeypatch.setattr("dmkl.data.readers.matlab.matlab_child.__file__", str(child))
    child.write_text("import os; os.kill(os.getpid(), 11)")
    assert "its parser ended with -11" in unpredicted(tmp_path / "x.mat")


def test_new_zarr_folders(tmp_path: Path, mark: Path, unpredicted: Unpredicted) -> None:
    import zarr

    def said(change: Change, chunk: bytes = b"", pipe: bool = False) -> str:
        path = tmp_path / "x.zarr"
        shutil.rmtree(path, ignore_errors=True)
        group = zarr.open_group(path, mode="w")
        group.create_array("X", data=np.ones((8, 3)), chunks=(4, 3), compressors=None)
        rewrite(path / "X/zarr.json", change)
        if chunk:
            (path / "X/c/0/0").write_bytes(chunk)
        if pipe:
            os.mkfifo(path / "X/c/9")
        return unpredicted(path)

    for case, change in ARRAYS.items():
        if case not in ("integers", "keys elsewhere"):  # a foreign array may be like that
            said(change)
    assert "chunks" in said(ARRAYS["more samples"])
    assert "chunks" in said(ARRAYS["billion chunks"])
    few = {"name": "regular", "configuration": {"chunk_shape": [10**6, 3]}}
    nothing = said(lambda h: h.update(shape=[10**11, 3], chunk_grid=few))
    assert "lacks some of its 100,000 chunks" in nothing
    said(lambda h: None, pickle.dumps(Bomb(mark)))
    assert "is not a regular file" in said(lambda h: None, pipe=True)


def test_new_zarr_that_expands(tmp_path: Path, unpredicted: Unpredicted, full: None) -> None:
    import zarr

    values = np.ones((8, 3))
    for name, wide in (("X", np.ones((2, 10**5))), ("other", np.ones(10**5))):
        group = zarr.open_group(tmp_path / f"{name}.zarr", mode="w")
        for key, array in ({"X": values} | {name: wide}).items():
            group.create_array(key, data=array, chunks=array.shape)
        assert sum(path.stat().st_size for path in (tmp_path / f"{name}.zarr").rglob("*")) < 30_000
        assert f"array '{name}'" in (said := unpredicted(tmp_path / f"{name}.zarr"))
        assert "MB are free" in said


# --- checkpoints, runs, profiles


def signed(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST).digest() + data


def test_checkpoints(store: KernelStore, tmp_path: Path, mark: Path) -> None:
    kept = tmp_path / "checkpoint"
    dmkl.solve(open_stack(store.path), store.labels, dmkl.UniformMKL(C=1.0), checkpoint=kept)
    with np.load(io.BytesIO(kept.read_bytes()[DIGEST:])) as archive:
        arrays = dict(archive)
    identity = str(arrays["identity"])
    assert load_state(kept, identity) is not None
    kept.with_name("checkpoint.previous").unlink(missing_ok=True)

    def written(**changes: Any) -> bytes:
        buffer = io.BytesIO()
        np.savez(buffer, **{**arrays, **changes})
        return signed(buffer.getvalue())

    bomb = io.BytesIO()
    np.savez_compressed(bomb, **{**arrays, "own.x": np.zeros(10**6)})
    for name, data in {
        "objects": written(weights=np.array([Bomb(mark)], dtype=object)),
        "pickle": signed(pickle.dumps(Bomb(mark))),
        "empty": signed(b""),
        "compressed": signed(bomb.getvalue()),
        "fewer": written(intercept=np.zeros(1)),
        "other shape": written(**{"coef.shape": np.array([HUGE, 3])}),
        "sets of more samples": written(**{"working.n": np.array(HUGE)}),
        "another size": written(**{"working.sizes": arrays["working.sizes"] - 1}),
        "set outside": written(**{"working.bits": arrays["working.bits"] | 1}),
        "indices outside": written(**{"coef.indices": arrays["coef.indices"] + 10**6}),
        "nan": written(**{"coef.data": np.full_like(arrays["coef.data"], np.nan)}),
        "text": written(round=np.array("many")),
        "unknown": written(command=np.array("true")),
    }.items():
        kept.write_bytes(data)
        said = refused(lambda: load_state(kept, identity), len(data), kind=StoreError)
        assert "is damaged" in said, name
    many = {"working.n": np.array(10**15), "coef.shape": np.array([10**15, 3])}
    few = {"working.sizes": np.zeros(3, dtype=np.int64), "working.bits": np.empty(0, dtype=np.uint8)}
    kept.write_bytes(written(**many, **few))
    question = open_stack(store.path), store.labels, dmkl.UniformMKL(C=1.0)
    said = refused(lambda: dmkl.solve(*question, checkpoint=kept), 0, kind=StoreError)
    assert "is damaged: it has 1000000000000000 samples" in said
    kept.unlink()
    os.mkfifo(kept)
    assert load_state(kept, identity) is None


DEEP = "[" * 100_000
JSONS = {
    "deep": DEEP,
    "deep value": '{"data": ' + "[" * 900 + "]" * 900 + "}",
    "list": "[]",
    "number": "7",
    "cut": '{"data": {"pa',
    "not text": "\udcff",
    "wrong types": '{"data": 3, "run": "x", "solve": [], "kernels": {}}',
    "wrong values": '{"data": {"path": [{}]}, "kernels": [3], "solve": {"tol": "much"}}',
    "infinite": '{"data": {"path": "x", "test": 1e999}, "kernels": [{"kernel": "rbf"}]}',
}


@pytest.mark.parametrize("case", JSONS)
def test_run_directories(case: str, tmp_path: Path, model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory(tmp_path / "run")
    save_model(run.model, model)
    text = JSONS[case].encode(errors="surrogateescape")
    (run.path / "config.json").write_bytes(text)
    np.savez(tmp_path / "d.npz", X=np.ones((3, 3)))
    assert main(["predict", str(run.path), str(tmp_path / "d.npz"), "-o", str(tmp_path / "p.csv")]) in (2, 5)
    one_line(capsys)
    main(["status", str(run.path)])
    one_line(capsys, maybe=True)
    run.scores.write_bytes(text)
    assert main(["info", str(run.path)]) == 5
    one_line(capsys)
    run.scores.unlink()
    for path in (run.events, run.cluster / "state.json", run.cluster / "job.json"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text)
    with_model_or_refusal(lambda: run_status(run))
    assert main(["train", "--example", "digits", "-o", str(run.path)]) in (5, 8)
    one_line(capsys)


def one_line(capsys: pytest.CaptureFixture[str], *, maybe: bool = False) -> None:
    said = capsys.readouterr().err
    assert "internal error" not in said
    assert len(said) < 3000
    assert [line.partition(":")[0] for line in said.splitlines()] == ["error", "hint"] or (maybe and not said)


@pytest.mark.parametrize("case", [*JSONS, "pipe"])
def test_what_a_report_and_probabilities_are_made_of(
    case: str, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any file of a run may hold anything: the report is written without it, or refused in one line."""
    for name in ("calibration.json", "timeline.json", "tuning.json", "tuning.svg", "manifest.json", "scores.json"):
        run = RunDirectory(Path(shutil.copytree(runs["array"], tmp_path / name)))
        (run.path / name).unlink(missing_ok=True)
        if case == "pipe":
            os.mkfifo(run.path / name)
        else:
            (run.path / name).write_bytes(JSONS[case].encode(errors="surrogateescape"))
        assert main(["report", str(run.path), "-q"]) in (0, 5)
        one_line(capsys, maybe=True)
        data, output = str(runs["array"].parent / "d.npz"), str(tmp_path / f"{name}.csv")
        code = main(["predict", str(run.path), data, "-o", output, "--proba", "-q"])
        assert code == (5 if name == "calibration.json" else 0)
        one_line(capsys, maybe=True)


DIFFERENT: dict[str, tuple[str, Change]] = {
    "slopes of others": ("calibration.json", field("slope", value=[1.0])),
    "slopes of text": ("calibration.json", field("slope", value=["a", "b", "c"])),
    "samples of text": ("calibration.json", field("samples", value="many")),
    "more of it": ("calibration.json", field("command", value="true")),
    "absurd bins": ("timeline.json", field("bins", value=10**11)),
    "bins elsewhere": ("timeline.json", lambda h: h["rows"][0].update(bins=[HUGE])),
    "rows of text": ("timeline.json", field("rows", value="abc")),
    "points of text": ("tuning.json", lambda h: h.update(table=["a"], folds=3, metric="m", rule="r", chosen=0)),
    "nothing in it": ("manifest.json", lambda h: h.clear() or h.update(a=1)),
    "seconds of text": ("scores.json", field("train", "seconds", value="long")),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_a_report_says_of_wrong_values(
    case: str, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, change = DIFFERENT[case]
    run = RunDirectory(Path(shutil.copytree(runs["array"], tmp_path / "run")))
    if not (run.path / name).exists():
        (run.path / name).write_text("{}")
    rewrite(run.path / name, change)
    data, output = str(runs["array"].parent / "d.npz"), str(tmp_path / "out.csv")
    with little_memory():
        if name == "calibration.json":
            assert main(["predict", str(run.path), data, "-o", output, "--proba", "-q"]) == 5
        else:
            assert main(["report", str(run.path), "-q"]) == 5
    one_line(capsys)


def test_predictions_of_a_run_that_are_something_else(
    runs: dict[str, Path], tmp_path: Path, mark: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDirectory(Path(shutil.copytree(runs["array"], tmp_path / "run")))
    good = dict(np.load(run.predictions))
    nothing = zipped(tmp_path / "x.npz", {"scores.npy": NPY["absurd shape"]}).read_bytes()
    for change in (
        {"scores": np.array([Bomb(mark)] * 3, dtype=object)},
        {"scores": np.ones((4, 3))},
        {"scores": np.array(["a"])},
        {"truth": good["truth"] + 10**9},
        {"task": np.array("regression")},
        {"task": np.array("exec")},
        {"classes": np.array(["a"])},
        {"opened": np.array([HUGE])},
        {"winners": np.array([1.0])},
        {"added": good["added"][:, :0]},
        {"rows": good["rows"][:1]},
        pickle.dumps(Bomb(mark)),
        nothing,
    ):
        if isinstance(change, dict):
            np.savez(run.predictions, **(good | change))
        else:
            run.predictions.write_bytes(change)
        assert main(["report", str(run.path), "-q"]) == 5, change
        one_line(capsys)
    run.predictions.unlink()
    os.mkfifo(run.predictions)
    assert main(["report", str(run.path), "-q"]) == 5
    one_line(capsys)


def test_pipes_in_a_run_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory(tmp_path / "run")
    run.cluster.mkdir(parents=True)
    for path in (run.path / "config.json", run.events, run.cluster / "job.json", run.cluster / "state.json"):
        os.mkfifo(path)
    for command in (["status"], ["info"], ["train", "--example", "digits", "-o"]):
        assert main([*command, str(run.path)]) in (5, 8)
        one_line(capsys)


@pytest.mark.parametrize(
    "text", ["x = " + DEEP, "cores = " + "9" * 5000, "\0", "coordinator = 3", "[[tls]]", "python = 3"]
)
def test_profiles_and_configurations(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.toml").write_text(text)
    refused(lambda: read_profile(f"slurm:{tmp_path / 'p.toml'}"), kind=ConfigError)
    refused(lambda: read_config(tmp_path / "p.toml"), kind=ConfigError)
    os.mkfifo(tmp_path / "pipe.toml")
    refused(lambda: read_profile(f"slurm:{tmp_path / 'pipe.toml'}"), kind=ConfigError)


def test_overrides_of_what_is_no_table() -> None:
    refused(lambda: parse_config({"run": 5, "data": {"example": "digits"}}, overrides={"run.memory": "1 GB"}))
    refused(lambda: parse_config({"run": {"a": 1}}, overrides={"run.a.b": "1"}))


def test_a_files_names_do_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(
        tmp_path / "x.npz", **{"X_\x1b[2J": np.ones((4, 2)), "y": np.array([0, 1, 0, 1]), "\x1b]0;evil\x07": np.ones(3)}
    )
    (tmp_path / "c.toml").write_text('[data]\npath = "x.npz"\nlabels = "z"\n[[kernels]]\nkernel = "rbf"\n')
    assert main(["train", str(tmp_path / "c.toml"), "-o", str(tmp_path / "run")]) == 4
    said = capsys.readouterr().err
    assert "evil" in said
    assert all(line.isprintable() for line in said.splitlines())


def test_estimators_take_no_objects(mark: Path) -> None:
    X: Any = np.array([[Bomb(mark), 1], [Bomb(mark), 2], [1, 1], [2, 2]], dtype=object)
    with pytest.raises((TypeError, ValueError)):  # scikit-learn's own refusal
        dmkl.SpicyMKLClassifier().fit(X, [0, 1, 0, 1])


# --- what is written


@pytest.mark.parametrize("mask", [0o077, 0o002])
def test_files_are_written_with_the_users_umask(mask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = three_classes(60)
    assert data.labels is not None
    np.savez("d.npz", X=data.views["points"].values, y=data.labels.values)
    Path("c.toml").write_text(
        '[data]\npath = "d.npz"\n[[kernels]]\nkernel = "rbf"\nnormalise = "centre"\nwidth = ["1 median", 2.0]\n'
        '[formulation]\nname = "vskl"\n[run]\nkernels = "store"\n'
    )
    before = set(tmp_path.rglob("*"))
    kept = os.umask(mask)
    try:
        assert main(["train", "c.toml", "-o", "run", "-q", "--cluster", "local:1"]) == 0
        assert main(["predict", "run", "d.npz", "-o", "p.npz", "-q"]) == 0
        assert main(["predict", "run", "d.npz", "-o", "p.csv", "-q"]) == 0
        save_checkpoint(tmp_path / "checkpoint")
    finally:
        os.umask(kept)
    written = set(tmp_path.rglob("*")) - before
    assert {"model.zarr.zip", "report.html", "events.jsonl", "p.csv", "checkpoint", "checkpoint.previous"} <= {
        path.name for path in written
    }
    for path in written:
        whole = 0o777 if path.is_dir() else 0o666
        assert path.stat().st_mode & 0o7777 == whole & ~mask, path


def save_checkpoint(path: Path) -> None:
    state = State.first(np.ones(2), SampleSets.whole(3, 1))
    for _ in range(2):
        save_state(path, state, "x")
