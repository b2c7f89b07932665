"""Tiles that are damaged, cut off or gone are computed again, with the bits they had, while a run goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import assert_same_model, flip_a_bit, small_working_sets, three_classes

import dmkl
from dmkl._util.machine import Budget
from dmkl.config import KernelConfig, parse_config
from dmkl.data import Dataset, make_labels, make_view
from dmkl.errors import StoreError
from dmkl.events import Event, Note, RoundDone
from dmkl.kernels import plan_bank
from dmkl.run import RunContext, RunDirectory, train_run
from dmkl.runtime import Local
from dmkl.stack import open_stack
from dmkl.stack.tiles import MemoryShares
from dmkl.store import KernelStore, build_store

DAMAGES: dict[str, Callable[[Path], None]] = {
    "flipped": lambda path: flip_a_bit(path, 50),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1000]),
    "removed": Path.unlink,
}
DAMAGED = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
PLACES = pytest.mark.parametrize("place", ["here", "on workers"])


def copied(store: KernelStore, folder: Path) -> KernelStore:
    return KernelStore(Path(shutil.copytree(store.path, folder / "copy.zarr")))


def runtime(place: str, request: pytest.FixtureRequest) -> Any:
    return Local(2) if place == "here" else request.getfixturevalue("two_workers")


@DAMAGED
@PLACES
def test_a_pass_repairs_what_it_meets(
    store: KernelStore, tmp_path: Path, request: pytest.FixtureRequest, place: str, damage: Callable[[Path], None]
) -> None:
    mine = copied(store, tmp_path)
    stack = open_stack(mine.path, runtime=runtime(place, request), backend="disk")
    broken = mine.tile_path(1, 3)
    damage(broken)
    weights = np.linspace(1, 2, mine.s)
    assert np.array_equal(stack.combine(weights), open_stack(store.path).combine(weights))
    assert broken.read_bytes() == store.tile_path(1, 3).read_bytes()
    was = "missing" if damage is DAMAGES["removed"] else "damaged"
    assert stack.news() == [f"a tile was {was} and has been computed again: {broken}"]
    assert stack.news() == []
    assert not list(mine.path.rglob("*.partial"))


@PLACES
def test_tiles_that_are_held_are_repaired_as_they_are_loaded(
    store: KernelStore, tmp_path: Path, request: pytest.FixtureRequest, place: str
) -> None:
    mine = copied(store, tmp_path)
    flip_a_bit(mine.tile_path(0, 2), -3)
    stack = open_stack(mine.path, runtime=runtime(place, request))
    assert stack.backend == ("memory" if place == "here" else "cluster")
    weights = np.ones(mine.s)
    assert np.array_equal(stack.combine(weights), open_stack(store.path).combine(weights))
    assert len(stack.news()) == 1


class Saboteur:
    """Damages tiles once the first round is done, and keeps the events."""

    def __init__(self, store: KernelStore, damage: Callable[[Path], None]) -> None:
        self._store, self._damage = store, damage
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, RoundDone) and not any(isinstance(e, RoundDone) for e in self.events):
            for i, j in self._store.pairs[::2]:
                self._damage(self._store.tile_path(i, j))
        self.events.append(event)

    def notes(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Note)]

    def rounds(self) -> int:
        return sum(isinstance(event, RoundDone) for event in self.events)


@pytest.fixture
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several rounds on few samples."""
    small_working_sets(monkeypatch, start=10, least_growth=10)


@DAMAGED
@PLACES
@pytest.mark.usefixtures("small_sets")
def test_damage_between_rounds_changes_nothing(
    store: KernelStore, tmp_path: Path, request: pytest.FixtureRequest, place: str, damage: Callable[[Path], None]
) -> None:
    calm = dmkl.solve(open_stack(store.path, backend="disk"), store.labels, dmkl.VSKL(q=2, C=10), tol=1e-6)
    mine = copied(store, tmp_path)
    saboteur = Saboteur(mine, damage)
    stack = open_stack(mine.path, runtime=runtime(place, request), backend="disk")
    fit = dmkl.solve(stack, mine.labels, dmkl.VSKL(q=2, C=10), tol=1e-6, observer=saboteur)
    assert saboteur.rounds() > 1
    assert len(saboteur.notes()) == len(mine.pairs[::2])
    for name in ("weights", "coef", "intercept", "objective", "dual"):
        assert np.array_equal(getattr(fit, name), getattr(calm, name)), name
    for pair in mine.pairs:
        assert mine.tile_path(*pair).read_bytes() == store.tile_path(*pair).read_bytes()


@pytest.mark.usefixtures("small_sets")
def test_a_run_writes_down_what_was_repaired(store: KernelStore, tmp_path: Path) -> None:
    mine = copied(store, tmp_path)
    table = {"data": {"path": "gone.npz"}, "kernels": [{"kernel": "linear"}], "formulation": {"name": "vskl", "C": 10}}
    config = parse_config({**table, "solve": {"tol": 1e-6}})
    for out, observer in (("calm", lambda event: None), ("run", Saboteur(mine, DAMAGES["flipped"]))):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dmkl.stack.tiles.SHARES", MemoryShares(here=0.0))
            train_run(
                RunContext(config, RunDirectory(tmp_path / out), Local(1), Budget.default(), mine, observer=observer)
            )
    assert_same_model(tmp_path / "calm", tmp_path / "run")
    events = [json.loads(line) for line in RunDirectory(tmp_path / "run").events.read_text().splitlines()]
    notes = [event["text"] for event in events if event["event"] == "Note"]
    assert len(notes) == len(mine.pairs[::2])
    assert all("has been computed again" in text for text in notes)


def matrices(folder: Path) -> KernelStore:
    """A store of distance and kernel views, which it keeps too."""
    points = np.asarray(three_classes(60).views["points"].values)
    D = np.linalg.norm(points[:, None] - points[None], axis=2)
    data = Dataset(
        {"d": make_view("d", "distance", D), "k": make_view("k", "kernel", points @ points.T)},
        make_labels(np.arange(60) % 3),
    )
    kernels = [KernelConfig("distance", views=("d",), params={"width": "1 mean"}), KernelConfig("precomputed")]
    return build_store(folder / "m.zarr", plan_bank(kernels, data), data, Local(1), largest_tile=20)


def test_given_matrices_are_in_the_store_too(tmp_path: Path) -> None:
    mine = matrices(tmp_path)
    stack = open_stack(mine.path, backend="disk")
    before, whole = mine.tile_path(0, 1).read_bytes(), stack.combine(np.ones(2))
    flip_a_bit(mine.tile_path(0, 1), 50)
    assert np.array_equal(stack.combine(np.ones(2)), whole)
    assert mine.tile_path(0, 1).read_bytes() == before


@pytest.mark.parametrize("damage", [DAMAGES["flipped"], DAMAGES["removed"]], ids=["flipped", "removed"])
def test_a_tile_whose_source_is_lost_too_is_named(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    mine = matrices(tmp_path)
    flip_a_bit(mine.tile_path(0, 1), 50)
    damage(mine.path / "views/0/values/c/0/1")
    damaged = mine.tile_path(0, 1).read_bytes()
    with pytest.raises(
        StoreError, match=rf"{mine.tile_path(0, 1)}; the samples that it was computed from are lost too"
    ) as refusal:
        open_stack(mine.path, backend="disk").combine(np.ones(2))
    assert "remove the store and build it again with: dmkl kernels" in refusal.value.hint
    assert mine.tile_path(0, 1).read_bytes() == damaged


def test_workers_refusals_arrive_as_they_are(tmp_path: Path, two_workers: object) -> None:
    mine = matrices(tmp_path)
    flip_a_bit(mine.tile_path(0, 1), 50)
    flip_a_bit(mine.path / "views/0/values/c/0/1", 50)
    with pytest.raises(StoreError, match="lost too"):
        open_stack(mine.path, runtime=two_workers, backend="disk").combine(np.ones(2))
