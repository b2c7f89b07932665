"""dmkl predict: the same predictions from every format and in batches of any size; probabilities, contributions."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr
from conftest import three_classes
from sklearn.datasets import dump_svmlight_file

from dmkl.cli.main import main
from dmkl.data.readers import READERS, stream_arrays
from dmkl.model.model import ModelOptions
from dmkl.run.predict import Predictor
from dmkl.runtime import Local

CONFIG = """
[data]
path = "data.{suffix}"
test = {test}
[[kernels]]
kernel = "rbf"
width = ["0.5 median", "1 median"]
[[kernels]]
kernel = "linear"
normalise = ["unit-diagonal", "centre", "unit-trace"]
[formulation]
name = "{name}"
C = 5
"""
N = 150


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same samples as columns of a table and as one array, and a run on each."""
    data = three_classes(N)
    assert data.labels is not None
    X, y = np.asarray(data.views["points"].values), data.labels.values
    write_all(tmp_path, X, y)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_all(folder: Path, X: np.ndarray, y: np.ndarray) -> None:
    import pyarrow
    import pyarrow.parquet

    np.savez(folder / "data.npz", X=X, y=y)
    np.savez_compressed(folder / "packed.npz", X=X, y=y, note=np.array("any"), other=np.arange(3))
    np.savez(folder / "columns.npz", X=np.asfortranarray(X), y=y)
    np.save(folder / "X.npy", X)
    group = zarr.open_group(folder / "data.zarr", mode="w")
    for name, values in (("X", X), ("y", y)):
        group.create_array(name, data=values, chunks=(20, *values.shape[1:]))
    dump_svmlight_file(X, y, str(folder / "data.svmlight"), zero_based=False)
    names = [f"x{column}" for column in range(X.shape[1])]
    table = pyarrow.table({"id": [f"s{i}" for i in range(len(X))], **dict(zip(names, X.T, strict=True)), "y": y})
    pyarrow.parquet.write_table(table, folder / "data.parquet", row_group_size=40)
    for suffix, delimiter in ((".csv", ","), (".tsv", "\t")):
        with (folder / f"data{suffix}").open("w", newline="") as file:
            writer = csv.writer(file, delimiter=delimiter)
            writer.writerow(["id", *names, "y"])
            ids = ["many\nlines" if i % 5 == 0 else str(i) for i in range(len(X))]  # from row 6 on numbers for a while
            writer.writerows([ids[i], *X[i].tolist(), int(y[i])] for i in range(len(X)))


def train(suffix: str = "npz", name: str = "vskl", test: float = 0.3) -> None:
    Path("config.toml").write_text(CONFIG.format(suffix=suffix, name=name, test=test))
    assert main(["train", "config.toml", "-q", "-o", "run"]) == 0


def predict(data: str, output: str, *options: str) -> dict[str, np.ndarray]:
    assert main(["predict", "run", data, "-q", "-o", output, *options]) == 0
    return dict(np.load(output))


ARRAYS = ["data.npz", "packed.npz", "columns.npz", "X.npy", "data.zarr", "data.svmlight"]
TABLES = ["data.csv", "data.tsv", "data.parquet"]


@pytest.mark.parametrize(("suffix", "files"), [("npz", ARRAYS), ("csv", TABLES)], ids=["arrays", "tables"])
def test_small_batches_of_every_format_say_the_same(
    folder: Path, suffix: str, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train(suffix)
    whole = predict(files[0], "whole.npz")
    assert whole["score"].shape == (N, 3)
    monkeypatch.setattr("dmkl.model.model.OPTIONS", ModelOptions(largest_batch=4))
    sizes = []
    real = Predictor.predict
    monkeypatch.setattr(Predictor, "predict", lambda self, data, run: sizes.append(data.n) or real(self, data, run))
    for number, file in enumerate(files):
        again = predict(file, f"{number}.npz", "--workers", "2")
        np.testing.assert_allclose(again["score"], whole["score"], rtol=1e-5, atol=1e-6)
        assert np.array_equal(again["label"], whole["label"])
    assert max(sizes) <= 9  # a row of text may take two lines, so a batch ends with the next one
    assert sum(sizes) == N * len(files)


def test_slices_are_the_file(folder: Path) -> None:
    for file in (*ARRAYS, *TABLES):
        path = folder / file
        batches = stream_arrays(path, 7, lambda shapes: N)
        assert (batches is None) == (READERS[path.suffix].stream is None or file == "columns.npz")
        parts = list(batches or [])
        assert not parts or sum(len(next(iter(part.values()))) for part in parts) == N


def test_the_output_formats_agree(folder: Path) -> None:
    import pyarrow.parquet

    train()
    arrays = predict("data.npz", "out.npz", "--proba", "--explain")
    for output in ("out.csv", "out.parquet"):
        assert main(["predict", "run", "data.npz", "-q", "-o", output, "--proba", "--explain"]) == 0
    table = pyarrow.parquet.read_table("out.parquet")
    with Path("out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    kernels = [f"kernel {name}" for name in arrays["kernels"].tolist()]
    classes = arrays["classes"].tolist()
    scores, chances = [f"score {name}" for name in classes], [f"probability {name}" for name in classes]
    assert list(rows[0]) == table.column_names == ["label", *scores, *chances, "explained", *kernels, "intercept"]
    for names, values in (
        (scores, arrays["score"]),
        (chances, arrays["probability"]),
        (kernels, arrays["contribution"]),
    ):
        np.testing.assert_array_equal([[float(row[name]) for name in names] for row in rows], values)
        np.testing.assert_array_equal(np.column_stack([table[name].to_numpy() for name in names]), values)
    assert [row["label"] for row in rows] == table["label"].to_pylist() == arrays["label"].tolist()
    assert table.schema.metadata[b"calibrated_on"] == b"45"


def test_reasons_add_up_and_probabilities_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train()
    arrays = predict("data.npz", "out.npz", "--proba", "--explain")
    total = arrays["contribution"].sum(axis=1) + arrays["intercept"]
    np.testing.assert_allclose(total, arrays["score"].max(axis=1), rtol=1e-9)
    assert np.array_equal(arrays["explained"], arrays["label"])
    np.testing.assert_allclose(arrays["probability"].sum(axis=1), 1.0)
    truth = np.load("data.npz")["y"]
    taken = arrays["probability"][np.arange(N), truth]
    assert -np.log(taken).mean() < 0.7 * np.log(3)  # better than knowing nothing
    assert int(arrays["calibrated_on"]) == 45
    assert main(["predict", "run", "data.npz", "--json", "--proba", "-o", "more.csv"]) == 0
    assert json.loads(capsys.readouterr().out)["calibrated_on"] == 45


def test_probabilities_need_held_out_samples_and_classes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(test=0.0)
    assert main(["predict", "run", "data.npz", "-o", "out.csv", "--proba"]) == 2
    assert "held-out samples" in capsys.readouterr().err
    shutil.rmtree("run")
    np.savez("data.npz", X=np.load("data.npz")["X"], y=np.load("data.npz")["X"][:, 0] + 0.5)
    Path("config.toml").write_text(CONFIG.format(suffix="npz", name="spicy", test=0.3) + 'loss = "squared"\n')
    assert main(["train", "config.toml", "-q", "-o", "run"]) == 0
    assert main(["predict", "run", "data.npz", "-o", "out.csv", "--proba"]) == 2
    assert "a regression has no probabilities" in capsys.readouterr().err
    arrays = predict("data.npz", "out.npz", "--explain")
    total = arrays["contribution"].sum(axis=1) + arrays["intercept"]
    np.testing.assert_allclose(total, arrays["prediction"], rtol=1e-9)
    assert not list(folder.glob("*.csv"))[1:]  # the data's own


def test_data_that_go_wrong_late_leave_no_output(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train("csv")
    monkeypatch.setattr("dmkl.model.model.OPTIONS", ModelOptions(largest_batch=4))
    with Path("data.csv").open("a") as file:
        file.write("last,1.0,,3.0,4.0,5.0,1\n")
    before = sorted(path.name for path in folder.iterdir())
    for suffix in ("csv", "parquet", "npz"):
        assert main(["predict", "run", "data.csv", "-o", f"out.{suffix}"]) == 4
        assert f"row {N + 1} has an empty cell in column 'x1'" in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == before


def test_distances_to_the_training_samples_are_read_in_slices(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy.spatial.distance import cdist

    X, y = (np.load("data.npz")[name] for name in ("X", "y"))
    np.savez("data.npz", D_all=cdist(X, X), y=y)
    text = CONFIG.format(suffix="npz", name="uniform", test=0).split("[[kernels]]")
    kernel = 'kernel = "distance"\nwidth = "1 mean"\n[formulation]\nname = "uniform"\nC = 5\n'
    Path("config.toml").write_text(f"{text[0]}[[kernels]]\n{kernel}")
    assert main(["train", "config.toml", "-q", "-o", "run"]) == 0
    new = X[:40] + 0.1
    np.savez("new.npz", D_all=cdist(new, X))
    whole = predict("new.npz", "whole.npz")
    monkeypatch.setattr("dmkl.run.predict.BATCH_BYTES", 8.0 * N * 3)
    np.testing.assert_allclose(predict("new.npz", "parts.npz")["score"], whole["score"], rtol=1e-12)


def test_wide_samples_are_read_few_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train()
    predictor = Predictor.open(Path("run"))
    monkeypatch.setattr("dmkl.run.predict.BATCH_BYTES", 8.0 * 5 * 6)
    sizes = [len(arrays["label"]) for arrays in predictor.batches("data.npz", Local(2))]
    assert set(sizes) == {6}
