"""Cross-validation on one store: the table, the choice, and that it survives, fans out and computes nothing twice."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import KERNELS, save_npz, single, three_classes, whole

import dmkl
from dmkl.cli.main import main
from dmkl.data import Dataset, make_folds, make_labels
from dmkl.errors import ConfigError, DataError, DeadlineReached
from dmkl.events import PointDone
from dmkl.kernels import plan_bank
from dmkl.model import load_model
from dmkl.report.parts.tuning import draw_tuning
from dmkl.runtime import Local
from dmkl.solvers import FORMULATIONS
from dmkl.stack import KernelStack, open_stack
from dmkl.stack.tiles import ComputedSource
from dmkl.store import KernelStore, build_store
from dmkl.tuning import Tuned, named_candidates
from dmkl.tuning.search import all_candidates, paths
from dmkl.tuning.selection import PointScore, choose

POINTS = dmkl.grid(dmkl.VSKL, q=(1.0, np.inf), C=(0.1, 5.0))


def table(tuned: Tuned) -> list[PointScore]:
    """Everything but how long it took."""
    return [dataclasses.replace(row, seconds=0.0) for row in tuned.rows]


@pytest.fixture(scope="module")
def stack(store: KernelStore) -> KernelStack:
    return open_stack(store.path, workers=2, backend="memory")


@pytest.fixture(scope="module")
def tuned(stack: KernelStack, store: KernelStore) -> Tuned:
    return dmkl.tune(stack, store.labels, POINTS, folds=3)


def test_values_are_those_of_fits_on_parts_of_the_matrix(tuned: Tuned, store: KernelStore, stack: KernelStack) -> None:
    K, labels = whole(store).astype(np.float64), store.labels
    assert labels is not None
    for number, fold in enumerate(make_folds(labels, 3)):
        part = KernelStack.from_array(K[:, fold.kept][:, :, fold.kept], groups=stack.groups)
        for row, point in zip(tuned.rows, POINTS, strict=True):
            fit = dmkl.solve(part, labels.take(fold.kept), point)
            cross = np.einsum("ka,ahi->khi", fit.weights, K[:, fold.held][:, :, fold.kept])
            scores = np.einsum("khi,ik->hk", cross, fit.coef) + fit.intercept
            right = scores.argmax(axis=1) == labels.values[fold.held]
            assert abs(row.values[number] - right.mean()) <= 1.01 / len(right)  # a start elsewhere may turn a close one


def test_a_part_is_tuned_over_like_a_stack_of_its_own(store: KernelStore, stack: KernelStack) -> None:
    kept = np.arange(20, 140)
    labels, K = store.labels.take(kept), whole(store)[:, kept][:, :, kept]  # type: ignore[union-attr]
    alone = KernelStack.from_array(K, groups=stack.groups)
    tables = [dmkl.tune(one, labels, POINTS[:2], folds=3) for one in (stack.restrict(kept), alone)]
    for row, other in zip(*(found.rows for found in tables), strict=True):
        np.testing.assert_allclose(row.values, other.values, atol=0.03)  # a close one may turn
        assert row.mean > 0.6


def test_means_and_standard_errors(tuned: Tuned) -> None:
    assert tuned.metric == "accuracy"
    for row in tuned.rows:
        values = np.array(row.values)
        assert row.mean == pytest.approx(values.mean())
        assert row.se == pytest.approx(values.std(ddof=1) / np.sqrt(3))
        assert row.unproved == 0
        assert 0 < row.kernels <= 6
    assert tuned.passes == sum(row.passes for row in tuned.rows)


@pytest.mark.parametrize("name", FORMULATIONS)
def test_every_formulation_has_a_grid_and_can_be_tuned(name: str, stack: KernelStack, store: KernelStore) -> None:
    assert store.labels is not None
    points = all_candidates([FORMULATIONS[name]], stack, store.labels)
    assert len(points) >= 4
    assert len(set(points)) == len(points)
    assert all(np.isfinite(point.strength) and point.strength > 0 for point in points)
    found = dmkl.tune(stack, store.labels, [points[0], points[-1]], folds=2, tol=1e-2)
    assert max(row.mean for row in found.rows) > 0.5
    json.dumps(found.to_dict())
    assert found.to_csv().count("\n") == 3


def test_paths_differ_in_numbers_only() -> None:
    points = [dmkl.MIKL("1", 2.0), dmkl.L1MKL(1), dmkl.MIKL("2", 2.0), dmkl.MIKL("1", 1.0), dmkl.L1MKL(2.5)]
    assert paths(points) == [[0, 3], [1, 4], [2]]


def test_no_kernel_is_computed_twice(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = single(plan_bank(KERNELS, data))
    store = build_store(tmp_path / "k.zarr", bank, data, Local(1), largest_tile=40, computed=True)
    asked: list[Any] = []
    tile = ComputedSource.tile
    monkeypatch.setattr(ComputedSource, "tile", lambda source, *at: asked.append(at) or tile(source, *at))
    dmkl.tune(KernelStack.open(store.path, workers=1), store.labels, POINTS[:2], folds=3)
    assert len(asked) == len(set(asked)) == store.s * store.grid.tiles


@pytest.mark.parametrize("after", [1, 3, 4, 7])
def test_what_was_cut_short_goes_on(after: int, tuned: Tuned, stack: KernelStack, store: KernelStore, tmp_path: Path):
    def stop(event: Any) -> None:
        assert isinstance(event, PointDone)
        if event.done == after:
            raise KeyboardInterrupt

    seen: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        dmkl.tune(stack, store.labels, POINTS, folds=3, folder=tmp_path / "kept", observer=stop)
    before = stack.passes
    again = dmkl.tune(stack, store.labels, POINTS, folds=3, folder=tmp_path / "kept", observer=seen.append)
    assert table(again) == table(tuned)
    assert len(seen) == 12
    assert stack.passes == before  # the whole itself is never solved on
    files = [path.name for path in (tmp_path / "kept").iterdir()]
    assert sum(name.endswith(".checkpoint") for name in files) == 3  # of the last point of each path


def test_finished_points_are_not_solved_again(
    stack: KernelStack, store: KernelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"folds": 3, "folder": tmp_path}
    first = dmkl.tune(stack, store.labels, POINTS, **kept)
    monkeypatch.setattr("dmkl.tuning.fold_path.solve", lambda *_, **__: pytest.fail("solved again"))
    assert dmkl.tune(stack, store.labels, POINTS, **kept).rows == first.rows


def test_other_settings_are_another_search(stack: KernelStack, store: KernelStore, tmp_path: Path) -> None:
    loose, tight = (
        dmkl.tune(stack, store.labels, POINTS, folds=3, folder=tmp_path, tol=tol, method="mirror")
        for tol in (0.1, 1e-5)
    )
    assert table(tight) == table(dmkl.tune(stack, store.labels, POINTS, folds=3, tol=1e-5, method="mirror"))
    assert table(loose) != table(tight)


def test_out_of_time_is_said_and_gone_on_from(
    tuned: Tuned, stack: KernelStack, store: KernelStore, tmp_path: Path
) -> None:
    with pytest.raises(DeadlineReached, match="with 0 of 12 points"):
        dmkl.tune(stack, store.labels, POINTS, folds=3, folder=tmp_path, max_seconds=1e-9)
    for _ in range(200):  # at least a round a time
        with contextlib.suppress(DeadlineReached):
            found = dmkl.tune(stack, store.labels, POINTS, folds=3, folder=tmp_path, max_seconds=0.02)
            break
    assert table(found) == table(tuned)


@pytest.mark.parametrize("kind", ["disk", "computed", "array"])
def test_where_tiles_are_does_not_matter(kind: str, tuned: Tuned, store: KernelStore, stack: KernelStack) -> None:
    if kind == "array":
        other = KernelStack.from_array(whole(store), groups=stack.groups, largest_tile=40)
    else:
        other = open_stack(store.path, workers=1, backend=kind)
    assert table(dmkl.tune(other, store.labels, POINTS, folds=3)) == table(tuned)


def test_a_cluster_gives_the_same_table(
    tuned: Tuned, store: KernelStore, stack: KernelStack, two_workers: Any, tmp_path: Path
) -> None:
    labels = store.labels
    found = dmkl.tune(stack, labels, POINTS, folds=3, client=two_workers.client, folder=tmp_path)
    assert table(found) == table(tuned)
    again = dmkl.tune(stack, labels, POINTS, folds=3, client=two_workers.client, folder=tmp_path)
    assert found.rows == again.rows  # with its seconds: it is what was kept
    placed = open_stack(store.path, runtime=two_workers)
    assert table(dmkl.tune(placed, labels, POINTS, folds=3)) == table(tuned)
    array = KernelStack.from_array(whole(store), groups=stack.groups, largest_tile=40)
    assert table(dmkl.tune(array, labels, POINTS, folds=3, client=two_workers.client)) == table(tuned)


def test_points_apart_are_tasks_of_their_own(
    tuned: Tuned, store: KernelStore, stack: KernelStack, two_workers: Any
) -> None:
    """As many as folds and points, each from a cold start: more passes, and the same scores to the tolerance."""
    here = dmkl.tune(stack, store.labels, POINTS, folds=3, apart=True)
    asked = two_workers.submitted
    there = dmkl.tune(open_stack(store.path, runtime=two_workers), store.labels, POINTS, folds=3, apart=True)
    assert two_workers.submitted - asked >= 3 * len(POINTS)
    assert table(there) == table(here)
    assert sum(row.passes for row in here.rows) >= sum(row.passes for row in tuned.rows)
    for mine, theirs in zip(here.rows, tuned.rows, strict=True):
        assert abs(mine.mean - theirs.mean) < 0.05


def test_several_labels_and_real_targets(rng: np.random.Generator) -> None:
    X = rng.normal(size=(90, 3))
    K = np.stack([np.outer(x, x) for x in X.T])
    stack = KernelStack.from_array(K)
    found = dmkl.tune(stack, (X[:, :2] > 0).astype(int), [dmkl.L1MKL], folds=3)
    assert found.metric == "mean_average_precision"
    assert found.rows[found.best].mean > 0.9
    labels = make_labels(X[:, 0] + 0.1 * rng.normal(size=90), "regression")
    found = dmkl.tune(stack, labels, [dmkl.SpicyMKL], folds=3)
    assert found.metric == "r2"
    assert found.rows[found.best].mean > 0.9
    assert found.formulation.loss == "squared"
    assert found.rows[found.chosen].kernels == 1


def row(formulation: Any, mean: float, kernels: float, se: float = 0.02) -> PointScore:
    return PointScore(formulation, mean, se, kernels, (mean,), 1, 1, 0, 0.0)


def test_the_one_standard_error_rule() -> None:
    rows = [
        row(dmkl.L1MKL(1), 0.89, 2.0),
        row(dmkl.L1MKL(10), 0.90, 3.0),
        row(dmkl.L1MKL(100), 0.91, 5.0),
        row(dmkl.VSKL(2, 1), 0.895, 3.04),  # as few kernels as the second, to a tenth
        row(dmkl.VSKL(2, 0.1), 0.50, 1.0),
    ]
    assert choose(rows, "best") == (2, 2)
    assert choose(rows, "one-se") == (2, 0)
    rows[0] = dataclasses.replace(rows[0], mean=0.8899)
    assert choose(rows, "one-se") == (2, 1)


def test_of_equals_the_strongest_regularisation() -> None:
    rows = [row(dmkl.L1MKL(C), 0.9, 3.0) for C in (10, 1, 100)]
    assert choose(rows, "best") == (1, 1)
    rows = [row(dmkl.SpicyMKL(C), 0.9, 3.0) for C in (10, 1, 100)]
    assert choose(rows, "one-se") == (2, 2)
    rows = [row(dmkl.MIKL("1", lam), np.nan if lam == 2 else 0.9, 3.0) for lam in (2, 1, 0.5)]
    assert choose(rows, "one-se") == (1, 1)


def test_values_as_people_write_them() -> None:
    (cls, given), (_, other) = named_candidates(
        ["mikl", "vskl"], {"norm": [2, "21;1"], "C": [1, "inf"][:1], "lam": [1]}, {"vskl": {"q": 2.0, "C": 3.0}}
    )
    assert cls is dmkl.MIKL
    assert given == {"norm": ["2", "21;1"], "lam": [1.0]}
    assert other == {"C": [1.0]}
    assert named_candidates(["vskl"], {"q": ["inf"]}, {})[0][1] == {"q": [np.inf]}
    assert named_candidates(["spicy"], {}, {"spicy": {"C": 5.0, "loss": "squared"}})[0][1] == {"loss": ["squared"]}
    assert named_candidates(["obscure"], {"lam": [0.1]}, {})[0][1] == {"lam": [0.1]}


@pytest.mark.parametrize(
    ("names", "values", "message"),
    [
        (["vskl"], {"Q": [1]}, "no formulation here has a constant 'Q'"),
        (["vskl", "l1"], {"q": [0]}, r"q should be in \(0, inf\]"),
        (["l1"], {"C": [1, -1]}, "C should be positive"),
        (["l1"], {"C": 3}, "should be a list"),
        (["l1"], {"C": ["many"]}, "the grid of l1: C should be a number"),
        (["nothing"], {}, "unknown formulation 'nothing'"),
    ],
)
def test_bad_grids_are_refused_before_any_work(names: list[str], values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        named_candidates(names, values, {})


def test_bad_searches_are_refused(stack: KernelStack, store: KernelStore) -> None:
    with pytest.raises(ConfigError, match="unknown rule 'worst'"):
        dmkl.tune(stack, store.labels, POINTS, rule="worst")
    with pytest.raises(ConfigError, match="no points"):
        dmkl.tune(stack, store.labels, [])
    with pytest.raises(DataError, match="50 folds"):
        dmkl.tune(stack, store.labels, POINTS, folds=50)
    with pytest.raises(DataError, match="3 labels for a stack of 150"):
        dmkl.tune(stack, [0, 1, 1], POINTS)


def test_the_drawing_shows_every_point(tuned: Tuned) -> None:
    drawing = ElementTree.fromstring(draw_tuning(tuned))
    kinds = [child.tag.rpartition("}")[2] for child in drawing]
    assert kinds.count("circle") == len(POINTS) + 1  # and the one around the choice
    assert kinds.count("polyline") == 2
    assert any("VSKL q=inf" in (child.text or "") for child in drawing)
    one = dataclasses.replace(tuned, rows=tuned.rows[:1], chosen=0, best=0)
    ElementTree.fromstring(draw_tuning(one))


CONFIG = """
[data]
path = "data.npz"
test = 0.25
[[kernels]]
kernel = "rbf"
width = ["0.5 median", "1 median"]
[formulation]
name = "l1"
C = 5
[run]
tile = 40
[tune]
folds = 3
grid = { C = [0.1, 1, 10] }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save_npz(tmp_path / "data.npz", three_classes(120))
    (tmp_path / "config.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_from_configuration_to_the_chosen_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "config.toml", "-o", "run", "-v"]) == 0
    said = capsys.readouterr().out
    assert "3 folds x 3 points   L1MKL C=" in said
    assert "one-se rule" in said
    assert said.count("L1MKL C=") >= 5
    facts = json.loads((folder / "run/tuning.json").read_text())
    chosen = facts["table"][facts["chosen"]]
    assert facts["points"] == len(facts["table"]) == 3
    assert load_model(folder / "run/model.zarr.zip").about["formulation"] == chosen["point"]
    assert (folder / "run/tuning.csv").read_text().count("\n") == 4
    ElementTree.parse(folder / "run/tuning.svg")
    assert not (folder / "run/tuning").exists()
    scores = json.loads((folder / "run/scores.json").read_text())
    assert scores["tune"]["table"] == facts["table"]
    assert main(["train", "config.toml", "-o", "alone", "-s", f"formulation.C={chosen['formulation']['C']}"]) == 0
    alone = load_model(folder / "alone/model.zarr.zip")
    assert np.array_equal(alone.coef, load_model(folder / "run/model.zarr.zip").coef)


def test_a_store_and_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", "config.toml", "-o", "k.zarr"]) == 0
    options = ["-g", "C=1,2", "-g", "q=1,inf", "--formulation", "vskl", "--formulation", "l1", "--rule", "best"]
    capsys.readouterr()
    assert main(["tune", "k.zarr", "-o", "run", *options, "--folds", "2", "--repeats", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["tune"]
    names = [entry["point"] for entry in told["table"]]
    assert names == ["VSKL q=1 C=1", "VSKL q=inf C=1", "VSKL q=inf C=2", "VSKL q=1 C=2", "L1MKL C=1", "L1MKL C=2"]
    assert (told["folds"], told["repeats"], told["rule"]) == (2, 2, "best")
    assert len(told["table"][0]["values"]) == 4
    assert told["best"] == told["chosen"]


def test_out_of_time_on_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "config.toml", "-o", "run", "--max-time", "0.001"]) == 3
    assert "of 9 points" in capsys.readouterr().err
    assert main(["status", "run"]) == 0
    assert "points of all folds" not in capsys.readouterr().out
    assert main(["tune", "config.toml", "-o", "run"]) == 0
    assert main(["tune", "config.toml", "-o", "straight"]) == 0
    assert lines(folder / "run/tuning.csv") == lines(folder / "straight/tuning.csv")
    capsys.readouterr()
    assert main(["status", "run"]) == 0
    assert "tune     9 of 9 fits of the cross-validation" in capsys.readouterr().out


@pytest.mark.long
def test_killed_and_run_again(folder: Path) -> None:
    arguments = ["tune", "config.toml", "-q", "-g", "C=0.1,0.3,1,3,10,30,100", "--formulation", "vskl"]
    assert main([*arguments, "-o", "calm"]) == 0
    command = [sys.executable, "-m", "dmkl", *arguments, "-o", "killed"]
    kept = folder / "killed/tuning"
    process = subprocess.Popen(command)
    while process.poll() is None and not list(kept.glob("*.json")):
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert kept.exists(), "the run ended before it could be killed"
    assert main([*arguments, "-o", "killed"]) == 0
    assert lines(folder / "calm/tuning.csv") == lines(folder / "killed/tuning.csv")


def lines(path: Path) -> list[list[str]]:
    """A table without its seconds."""
    rows = [line.split(",") for line in path.read_text().splitlines()]
    seconds = rows[0].index("seconds")
    return [cells[:seconds] + cells[seconds + 1 :] for cells in rows]


@pytest.mark.long
def test_on_worker_processes(folder: Path) -> None:
    assert main(["tune", "config.toml", "-o", "here", "-q"]) == 0
    assert main(["tune", "config.toml", "-o", "there", "-q", "--cluster", "local:2"]) == 0
    assert lines(folder / "here/tuning.csv") == lines(folder / "there/tuning.csv")
