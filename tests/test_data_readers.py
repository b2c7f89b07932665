"""Readers: what each format gives back, and the one line that says why a file cannot be used."""

from __future__ import annotations

import json
import pickle
import sys
import warnings
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import zarr
from scipy.io import savemat
from scipy.sparse import csc_array, csr_array, save_npz
from sklearn.datasets import dump_svmlight_file

from dmkl.data import READERS, read_arrays
from dmkl.data.readers import Reader, stream_arrays
from dmkl.errors import DataError, ResourceError

X = np.arange(12.0).reshape(4, 3) * (np.arange(12).reshape(4, 3) % 2)
Y = np.array([0, 1, 1, 0])
TEXT = np.array(["ant", "bee", "ant", "cow"])


def same(found, expected):
    assert list(found) == list(expected)
    for name, values in expected.items():
        dense = found[name].toarray() if isinstance(found[name], csr_array) else found[name]
        assert dense.shape == values.shape
        assert (dense == values).all()


def write_text(path, text):
    path.write_text(text, encoding="utf-8")
    return path


# --- what comes back


def test_npz_and_npy(tmp_path):
    np.savez(tmp_path / "a.npz", X=X, y=Y, names=TEXT, scale=np.float32(2))
    same(read_arrays(tmp_path / "a.npz"), {"X": X, "y": Y, "names": TEXT, "scale": np.float32(2)})
    np.save(tmp_path / "b.npy", X.astype(np.float16))
    same(read_arrays(str(tmp_path / "b.npy")), {"b": X})


def test_csr_parts_are_one_array_named_by_the_file(tmp_path):
    matrix = csr_array(X)
    parts = {
        "data": matrix.data.astype(np.uint8),
        "indices": matrix.indices.astype(np.uint16),
        "indptr": matrix.indptr,
        "shape": np.array(X.shape),
    }
    np.savez(tmp_path / "words.npz", **parts, y=Y)
    found = read_arrays(tmp_path / "words.npz")
    same(found, {"words": X, "y": Y})
    assert isinstance(found["words"], csr_array)
    parts["data"] = matrix.data.astype(np.float16)
    np.savez(tmp_path / "half.npz", **parts)
    assert read_arrays(tmp_path / "half.npz")["half"].dtype == np.float32
    save_npz(tmp_path / "scipy.npz", matrix)
    same(read_arrays(tmp_path / "scipy.npz"), {"scipy": X})


@pytest.mark.parametrize(("suffix", "mark"), [(".csv", ","), (".tsv", "\t")])
def test_tables_as_text(tmp_path, suffix, mark):
    lines = ["height,weight,kind", "1,2.5,ant", ' 3 ,-4e1,"be,e"', "", "5,6,1_2", ""]
    path = write_text(tmp_path / f"t{suffix}", "\ufeff" + "\r\n".join(lines).replace(",", mark))
    found = read_arrays(path)
    kinds = np.array(["ant", f"be{mark}e", "1_2"])
    same(found, {"height": np.array([1.0, 3, 5]), "weight": np.array([2.5, -40, 6]), "kind": kinds})
    assert found["height"].dtype == np.float64
    numeric = write_text(tmp_path / f"n{suffix}", "a,b\n1,2\n3,nan\n".replace(",", mark))
    found = read_arrays(numeric)
    assert np.isnan(found["b"][1])
    assert found["a"].tolist() == [1, 3]


def test_parquet(tmp_path):
    table = pa.table(
        {
            "a": pa.array([1, 2, 3]),
            "b": pa.array([0.5, 1.5, 2.5], pa.float32()),
            "kind": pa.array(["x", "y", "x"]).dictionary_encode(),
            "flag": pa.array([True, False, True]),
            "dropped": pa.array([[1], [2], [3]]),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    found = read_arrays(tmp_path / "t.parquet")
    same(
        found,
        {
            "a": np.array([1, 2, 3]),
            "b": np.array([0.5, 1.5, 2.5], np.float32),
            "kind": np.array(["x", "y", "x"]),
            "flag": np.array([True, False, True]),
        },
    )
    assert found["b"].dtype == np.float32


@pytest.mark.parametrize("suffix", [".svmlight", ".libsvm", ".svm"])
def test_svmlight(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    dump_svmlight_file(X, Y, str(path), zero_based=False)
    same(read_arrays(path), {"X": X, "y": Y})


def test_svmlight_with_several_labels(tmp_path):
    path = write_text(tmp_path / "m.svm", "# a, comment\n1,3 1:0.5 2:1\n 2:3\n2 1:1 # x,y\n")
    indicator = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]])
    same(read_arrays(path), {"X": np.array([[0.5, 1], [0, 3], [1, 0]]), "y": indicator})


def test_mat(tmp_path):
    cells = np.empty(2, dtype=object)
    cells[:] = ["a", 1]
    content = {"X": X, "X_one": X[:1], "y": Y, "column": Y[:, None], "S": csc_array(X), "names": TEXT}
    savemat(tmp_path / "t.mat", {**content, "cells": cells, "struct": {"a": 1}})
    same(read_arrays(tmp_path / "t.mat"), {**content, "column": Y, "S": X})


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_group_and_array(tmp_path, version):
    group = zarr.open_group(tmp_path / "g.zarr", mode="w", zarr_format=version)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of writing fixed-width text
        group.create_array("names", data=TEXT)
    group["X"] = X
    group["y"] = Y
    group.create_group("inner")["z"] = Y
    same(read_arrays(tmp_path / "g.zarr"), {"X": X, "names": TEXT, "y": Y})
    zarr.save_array(tmp_path / "one.zarr", X, zarr_format=version)
    same(read_arrays(tmp_path / "one.zarr"), {"one": X})


def test_zarr_text_of_any_width(tmp_path):
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    group.create_array("names", data=TEXT.astype(np.dtypes.StringDType()))
    found = read_arrays(tmp_path / "g.zarr")
    same(found, {"names": TEXT})
    assert found["names"].dtype.kind == "U"


# --- what is refused


@pytest.mark.parametrize("suffix", sorted(set(READERS) - {".zarr"}))
def test_every_reader_refuses_missing_empty_and_damaged_files(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    with pytest.raises(DataError, match=r"no such file: .*check the path"):
        read_arrays(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="is empty"):
        read_arrays(path)
    path.write_bytes(b"\x93garbage \xff\xfe\x00 \n not, a file\n" * 9)
    with pytest.raises(DataError, match=rf"t\{suffix} is not a valid {suffix} file") as caught:
        read_arrays(path)
    assert "\n" not in str(caught.value)
    folder = tmp_path / f"d{suffix}"
    folder.mkdir()
    with pytest.raises(DataError, match="is a folder"):
        read_arrays(folder)


def test_cut_files_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.arange(1000))
    np.save(tmp_path / "a.npy", np.arange(1000))
    savemat(tmp_path / "a.mat", {"X": np.arange(1000.0)})
    pyarrow.parquet.write_table(pa.table({"a": np.arange(1000)}), tmp_path / "a.parquet")
    for path in sorted(tmp_path.iterdir()):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with pytest.raises(DataError, match="is not a valid"):
            read_arrays(path)


def test_unknown_suffix(tmp_path):
    with pytest.raises(DataError, match=r"unknown suffix '.cvs'; did you mean '.csv'"):
        read_arrays(write_text(tmp_path / "t.cvs", "a\n1\n"))


def test_unreadable_and_too_large(tmp_path, monkeypatch):
    path = write_text(tmp_path / "t.csv", "a\n1\n")

    def refuse(*args, error, **kwargs):
        raise error

    monkeypatch.setitem(
        READERS._entries, ".csv", Reader(partial(refuse, error=PermissionError(13, "Permission denied")))
    )
    with pytest.raises(DataError, match=r"cannot read .*t.csv: Permission denied; check"):
        read_arrays(path)
    monkeypatch.setitem(READERS._entries, ".csv", Reader(partial(refuse, error=MemoryError())))
    with pytest.raises(ResourceError, match="more memory"):
        read_arrays(path)


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


def test_pickles_are_never_loaded(tmp_path):
    bomb = np.array([Bomb()], dtype=object)
    np.savez(tmp_path / "a.npz", X=bomb)
    np.save(tmp_path / "a.npy", bomb)
    for name in ("a.npz", "a.npy"):
        with pytest.raises(DataError, match="is pickled, and pickles are never loaded"):
            read_arrays(tmp_path / name)
    (tmp_path / "b.npy").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(DataError, match=r"is not a valid .npy file"):
        read_arrays(tmp_path / "b.npy")


def pickling_zarr(path, kind, **codecs):
    """A zarr array whose chunk would be unpickled by numcodecs."""
    path.mkdir()
    array = {"shape": [1], "chunks": [1], "dtype": kind, "fill_value": 0, "order": "C", "zarr_format": 2}
    (path / ".zarray").write_text(json.dumps({**array, "filters": None, "compressor": None, **codecs}))
    (path / "0").write_bytes(pickle.dumps(Bomb()))
    return path


@pytest.mark.parametrize(
    ("kind", "codecs"),
    [
        ("<f8", {"compressor": {"id": "pickle"}}),
        ("<f8", {"filters": [{"id": "pickle"}]}),
        ("|O", {"filters": [{"id": "pickle"}]}),
        ("|O", {"filters": [{"id": "vlen-utf8"}, {"id": "pickle"}]}),
    ],
)
def test_pickling_codecs_are_refused(tmp_path, kind, codecs):
    with pytest.raises(DataError):
        read_arrays(pickling_zarr(tmp_path / "t.zarr", kind, **codecs))


def test_the_last_pickling_codec_is_refused_by_name(tmp_path):
    path = pickling_zarr(tmp_path / "t.zarr", "|O", filters=[{"id": "vlen-utf8"}, {"id": "pickle"}])
    with pytest.raises(DataError, match="is pickled, and pickles are never loaded"):
        read_arrays(path)


def test_zarr_refusals(tmp_path):
    path = tmp_path / "t.zarr"
    with pytest.raises(DataError, match="no such file"):
        read_arrays(path)
    path.mkdir()
    with pytest.raises(DataError, match="not a zarr group or array"):
        read_arrays(path)
    zarr.open_group(path, mode="w")
    with pytest.raises(DataError, match="holds no arrays"):
        read_arrays(path)
    (path / "zarr.json").write_text("{")
    with pytest.raises(DataError, match=r"not a valid .zarr file"):
        read_arrays(path)
    with pytest.raises(DataError, match=r"is a file; a .zarr is expected to be a folder"):
        read_arrays(write_text(tmp_path / "f.zarr", "x"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n3,4\n", "no header line: its first line holds numbers"),
        ("\n1,2\n", "has no header line"),
        ("a,,b\n1,2,3\n", "column 2 has no name"),
        ("a,b,a\n1,2,3\n", "two columns named 'a'"),
        ("a;b\n1;2\n", "semicolons"),
        ("a,b\n", "no rows"),
        ("a,b\n1,2\n3\n", r"row 2 \(line 3\) has 1 cells, the header 2"),
        ("a,b\n1,2,3\n", r"row 1 \(line 2\) has 3 cells, the header 2"),
        ("a,b\n1,x\n\n2, \n", r"row 2 \(line 4\) has an empty cell in column 'b'"),
        ("a,b\n1,2\n,4\n", r"row 2 \(line 3\) has an empty cell in column 'a'"),
        ('a,b\n1,"x\n', "not a valid .csv file"),
    ],
)
def test_csv_refusals(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_arrays(write_text(tmp_path / "t.csv", text))


def test_csv_that_is_not_utf8(tmp_path):
    (tmp_path / "t.csv").write_bytes("a,b\n1,é\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"not a valid .csv file: 'utf-8' codec"):
        read_arrays(tmp_path / "t.csv")


def test_npz_refusals(tmp_path):
    matrix = csr_array(X)
    parts = {"data": matrix.data, "indptr": matrix.indptr, "shape": np.array(X.shape)}
    np.savez(tmp_path / "bad.npz", **parts, indices=matrix.indices + 5)
    with pytest.raises(DataError, match=r"not a valid .npz file"):
        read_arrays(tmp_path / "bad.npz")
    np.savez(tmp_path / "twice.npz", **parts, indices=matrix.indices, twice=Y)
    with pytest.raises(DataError, match="sparse parts and an array 'twice'"):
        read_arrays(tmp_path / "twice.npz")
    save_npz(tmp_path / "csc.npz", csc_array(X))
    with pytest.raises(DataError, match="'csc' layout; save"):
        read_arrays(tmp_path / "csc.npz")
    np.savez(tmp_path / "none.npz")
    with pytest.raises(DataError, match="holds no arrays"):
        read_arrays(tmp_path / "none.npz")


def test_parquet_refusals(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    for table, message in (
        (pa.table({"a": [1, 2, None]}), "row 3 has an empty cell in column 'a'"),
        (pa.table({"a": pa.array([], pa.int64())}), "has no rows"),
        (pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), "two columns of the same name"),
        (pa.table({"a": [[1]]}), "holds no arrays that can be used"),
    ):
        pyarrow.parquet.write_table(table, path)
        with pytest.raises(DataError, match=message):
            read_arrays(path)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.delattr(pa, "parquet")
    with pytest.raises(DataError, match=r"needs pyarrow; pip install 'dmkl\[parquet\]'"):
        read_arrays(path)


def test_svmlight_without_samples(tmp_path):
    with pytest.raises(DataError, match="holds no samples"):
        read_arrays(write_text(tmp_path / "t.svm", "# nothing\n"))


def test_mat_refusals(tmp_path):
    head = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
    (tmp_path / "h.mat").write_bytes(head + b"\x89HDF\r\n\x1a\n" * 20)
    with pytest.raises(DataError, match=r"v7.3 file; save it in MATLAB with save\(..., '-v7'\)"):
        read_arrays(tmp_path / "h.mat")
    savemat(tmp_path / "s.mat", {"struct": {"a": 1}})
    with pytest.raises(DataError, match="holds no arrays"):
        read_arrays(tmp_path / "s.mat")


def test_a_format_is_one_reader_and_one_line(tmp_path, monkeypatch):
    """Files of numbers, one a line: read whole, and in parts when a prediction asks for them."""

    def stream(path, rows, length):
        numbers = np.loadtxt(path)
        return ({"X": numbers[start : start + rows]} for start in range(0, len(numbers), rows))

    monkeypatch.setattr(READERS, "_entries", dict(READERS._entries))
    READERS.register(".numbers", Reader(lambda path: {"X": np.loadtxt(path)}, stream))
    path = write_text(tmp_path / "x.numbers", "1\n2\n3\n")
    assert read_arrays(path)["X"].tolist() == [1.0, 2.0, 3.0]
    batches = stream_arrays(path, 2, lambda shapes: 3)
    assert [batch["X"].tolist() for batch in batches] == [[1.0, 2.0], [3.0]]
    with pytest.raises(DataError, match=r"is not a valid .numbers file: could not convert"):
        read_arrays(write_text(path, "one\n"))
