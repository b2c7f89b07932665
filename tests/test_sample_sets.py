"""Signs and sets of samples take little memory, and are those that dense arrays would hold."""

from __future__ import annotations

import io
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dmkl
from dmkl import KernelStack
from dmkl.data import Labels, make_labels
from dmkl.data.sample_sets import SampleSets
from dmkl.errors import StoreError
from dmkl.problems.spicy import null_forms
from dmkl.problems.targets import RealTargets, Signs, Targets
from dmkl.runtime import Local
from dmkl.solvers import api, working_sets
from dmkl.solvers.problem import Problem
from dmkl.solvers.state import DIGEST, State, load_state, save_state
from dmkl.solvers.working_sets import first_sets


@st.composite
def masks(draw: st.DrawFn) -> np.ndarray:
    """(n, m), of every density: few members are kept as numbers, many as bits."""
    n, m = draw(st.integers(1, 300)), draw(st.integers(1, 70))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.random((n, m)) < rng.choice([0.0, 0.01, 0.03, 0.5, 1.0], m)


def assert_holds(sets: SampleSets, dense: np.ndarray) -> None:
    n, m = dense.shape
    assert sets.shape == (n, m)
    np.testing.assert_array_equal(sets.masks(), dense)
    np.testing.assert_array_equal(sets.sizes, dense.sum(axis=0))
    for k in range(m):
        np.testing.assert_array_equal(sets.mask(k), dense[:, k])
        np.testing.assert_array_equal(sets.members(k), np.flatnonzero(dense[:, k]))
        assert (sets.mask(k).dtype, sets.members(k).dtype) == (bool, np.int64)
    assert sets.nbytes <= m * ((n + 7) // 8)


@given(masks())
def test_sets_hold_what_masks_hold(dense: np.ndarray) -> None:
    n, m = dense.shape
    assert_holds(SampleSets.of_masks(dense), dense)
    assert_holds(SampleSets.of_masks(dense.astype(np.uint8)), dense)
    assert_holds(SampleSets.of(n, (np.flatnonzero(column) for column in dense.T)), dense)
    assert_holds(SampleSets.alike(dense[:, 0], m), np.repeat(dense[:, :1], m, axis=1))
    assert_holds(SampleSets.whole(n, m), np.ones((n, m), dtype=bool))
    some = list(range(0, m, 2))
    assert_holds(SampleSets.of_masks(dense).among(some), dense[:, some])


@given(masks(), st.data())
def test_a_copy_is_changed_alone(dense: np.ndarray, data: st.DataObject) -> None:
    n, m = dense.shape
    sets = SampleSets.of_masks(dense)
    k, other = data.draw(st.integers(0, m - 1)), data.draw(arrays(bool, n))
    changed = sets.copy()
    changed.put(k, other)
    assert_holds(sets, dense)
    assert_holds(changed, np.where(np.arange(m) == k, other[:, None], dense))
    assert changed.differing(sets) == ([] if np.array_equal(other, dense[:, k]) else [k])
    assert sets.differing(SampleSets.of_masks(dense)) == []


@given(masks())
def test_sets_survive_a_checkpoint(dense: np.ndarray) -> None:
    sets = SampleSets.of_masks(dense)
    file = io.BytesIO()
    np.savez(file, **sets.arrays())
    assert_holds(SampleSets.read(np.load(io.BytesIO(file.getvalue()))), dense)


@given(masks(), st.data())
def test_arrays_of_no_sets_are_refused(dense: np.ndarray, data: st.DataObject) -> None:
    found = SampleSets.of_masks(dense).arrays()
    name = data.draw(st.sampled_from(sorted(found)))
    damaged = np.atleast_1d(found[name]).copy()
    if name == "n":
        found[name] = found[name] - 8 * data.draw(st.integers(1, 40))
    elif not damaged.size or data.draw(st.booleans()):
        found[name] = np.append(damaged, damaged.dtype.type(1))
    else:
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= damaged.dtype.type(2 ** data.draw(st.integers(0, 6)))
        found[name] = damaged
    try:
        read = SampleSets.read(found)
    except ValueError:
        return
    again = read.arrays()  # a flipped bit can make other sets, but never sets that others would not be saved as
    assert read.shape[0] == read.masks().shape[0]
    assert {key: value.tolist() for key, value in again.items()} == {key: v.tolist() for key, v in found.items()}
    np.testing.assert_array_equal(read.masks().sum(axis=0), read.sizes)


@given(masks(), st.data())
def test_signs_are_those_of_the_dense_matrix(inside: np.ndarray, data: st.DataObject) -> None:
    dense, n = np.where(inside, 1.0, -1.0), len(inside)
    assert_targets(Signs(SampleSets.of_masks(inside)), dense, data)
    real = np.random.default_rng(n).normal(size=inside.shape)
    assert_targets(RealTargets(real), real, data)
    above = RealTargets(real).sides()
    assert_holds(above, np.median(real, axis=0) < real)
    assert RealTargets(real).largest == np.abs(real).max()


def assert_targets(targets: Targets, dense: np.ndarray, data: st.DataObject) -> None:
    n, m = dense.shape
    assert targets.shape == (n, m)
    np.testing.assert_array_equal(targets.dense(), dense)
    for k, column in enumerate(targets):
        np.testing.assert_array_equal(column, dense[:, k])
    classes = data.draw(st.lists(st.integers(0, m - 1), min_size=1))
    samples = np.array(data.draw(st.lists(st.integers(0, n - 1))), dtype=np.int64)
    np.testing.assert_array_equal(targets.columns(classes), dense[:, classes])
    np.testing.assert_array_equal(targets.among(classes).dense(), dense[:, classes])
    np.testing.assert_array_equal(targets.at(samples, classes[0]), dense[samples, classes[0]])


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_labels_become_signs(task: str, rng: np.random.Generator) -> None:
    codes = rng.integers(0, 2 if task == "binary" else 5, 90)
    labels = make_labels(codes) if task != "multilabel" else make_labels((rng.random((90, 5)) < 0.3).astype(int))
    assert labels.task == task
    dense = {
        "binary": codes[:, None] == 1,
        "multiclass": codes[:, None] == np.arange(5),
        "multilabel": labels.values == 1,
    }[task]
    np.testing.assert_array_equal(labels.signs(), np.where(dense, 1.0, -1.0))
    np.testing.assert_array_equal(dmkl.VSKL().targets(labels).dense(), labels.signs())


def dense_first_sets(Y: np.ndarray, seed: int, count: int) -> np.ndarray:
    """As the definition says."""
    order = np.random.default_rng(seed).permutation(len(Y))
    found = np.zeros(Y.shape, dtype=bool)
    for k in range(Y.shape[1]):
        for side in (-1, 1):
            found[order[Y[order, k] == side][:count], k] = True
    return found


@given(masks(), st.integers(0, 50))
def test_first_sets_are_the_first_of_either_side(inside: np.ndarray, count: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(working_sets, "OPTIONS", replace(working_sets.OPTIONS, whole_up_to=0, start=count))
        found = first_sets(SampleSets.of_masks(inside), 3)
    assert_holds(found, dense_first_sets(np.where(inside, 1, -1), 3, count))


def test_thousands_of_classes_take_little_memory() -> None:
    """Dense signs of float64 take 3.2 GB here, and masks 0.4 GB."""
    n, m = 200_000, 2_000
    labels = Labels("multiclass", np.arange(n) % m, tuple(map(str, range(m))))
    stack = KernelStack.from_array(np.ones((1, 2, 2)))
    tracemalloc.start()
    try:
        problem = Problem(stack, dmkl.VSKL().targets(labels), 1e-3, "smo", Local(1))
        assert (problem.n, problem.m) == (n, m)
        state = State.first(np.ones(1), first_sets(problem.Y.sides(), 0))
        column = problem.Y.column(7)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (np.flatnonzero(column == 1.0) % m == 7).all()
    assert state.working.sizes.tolist() == [100 + working_sets.OPTIONS.start] * m
    print(
        f"\nsigns and first sets of {n:,} samples and {m:,} classes: {kept / 1e6:.1f} MB, at most {peak / 1e6:.1f} MB"
    )
    assert peak < 50e6
    state.working.put(0, np.ones(n, dtype=bool))
    assert state.working.nbytes < 10e6


def test_a_checkpoint_keeps_the_sets_and_is_small(tmp_path: Path) -> None:
    n, m = 20_000, 300
    sets = SampleSets.of_codes(np.arange(n) % m, m)
    sets.put(3, np.arange(n) % 2 == 0)
    state = State.first(np.ones(2), sets)
    save_state(tmp_path / "checkpoint", state, "problem")
    assert (tmp_path / "checkpoint").stat().st_size < n * m / 8
    loaded = load_state(tmp_path / "checkpoint", "problem")
    assert loaded is not None
    assert loaded.working.differing(sets) == []


def test_a_checkpoint_with_dense_sets_is_of_another_version(tmp_path: Path) -> None:
    import hashlib

    file = io.BytesIO()
    np.savez(file, identity=np.array("before"), working=np.ones((4, 1), dtype=bool))
    checksum = hashlib.blake2b(file.getvalue(), digest_size=DIGEST).digest()
    (tmp_path / "checkpoint").write_bytes(checksum + file.getvalue())
    with pytest.raises(StoreError, match="written by another version of dmkl"):
        load_state(tmp_path / "checkpoint", "problem")


def test_the_identity_of_a_problem_depends_on_every_sign(rng: np.random.Generator) -> None:
    K, y = np.stack([np.eye(40)]), rng.integers(0, 3, 40)
    stack = KernelStack.from_array(K)
    found = set()
    for i in range(41):
        codes = y.copy()
        if i < 40:
            codes[i] = (codes[i] + 1) % 3
        signs = Signs(SampleSets.of_codes(codes, 3))
        found.add(api.identify(Problem(stack, signs, 1e-3, "smo", Local(1)), dmkl.VSKL()))
    assert len(found) == 41


def test_slopes_of_many_classes_are_taken_batch_by_batch(rng: np.random.Generator) -> None:
    X = rng.normal(size=(50, 3))
    stack = KernelStack.from_array(np.stack([X @ X.T, np.eye(50)]))
    formulation = dmkl.SpicyMKL()
    Y = formulation.targets(make_labels(rng.integers(0, 5, 50)))
    at_once = null_forms(stack, formulation.own_loss(), Y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dmkl.problems.spicy.AT_ONCE", 2 * 50)
        before = stack.passes
        np.testing.assert_allclose(null_forms(stack, formulation.own_loss(), Y), at_once, rtol=1e-12)
        assert stack.passes - before == 3
