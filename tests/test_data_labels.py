"""Labels: every form a user brings, what is refused, and what defines signs, take and encode_like."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from dmkl.data import encode_like, make_labels
from dmkl.errors import ConfigError, DataError

quick = settings(database=None, deadline=None, max_examples=60)
codes = st.lists(st.integers(-3, 5), min_size=2, max_size=30).filter(lambda row: len(set(row)) > 1)


@pytest.mark.parametrize(
    ("raw", "task", "classes", "values"),
    [
        ([-1, 1, 1, -1], "binary", ("-1", "1"), [0, 1, 1, 0]),
        ([7, 3, 7], "binary", ("3", "7"), [1, 0, 1]),
        ([0.5, 0.25, 0.5], "binary", ("0.25", "0.5"), [1, 0, 1]),
        ([True, False], "binary", ("False", "True"), [1, 0]),
        ([2.0, 0.0, 1.0, 2.0], "multiclass", ("0", "1", "2"), [2, 0, 1, 2]),
        (np.array([9, 10, 8], dtype=np.uint8), "multiclass", ("8", "9", "10"), [1, 2, 0]),
        (["cat", "ant", "bee"], "multiclass", ("ant", "bee", "cat"), [2, 0, 1]),
        (np.array(["b", "a"], dtype=object), "binary", ("a", "b"), [1, 0]),
        (np.array([b"b", b"a"]), "binary", ("a", "b"), [1, 0]),
        (np.array(["b", "a"], dtype=np.dtypes.StringDType()), "binary", ("a", "b"), [1, 0]),
        ([[1], [2], [3]], "multiclass", ("1", "2", "3"), [0, 1, 2]),
    ],
)
def test_classes_are_sorted_and_coded(raw, task, classes, values):
    labels = make_labels(raw)
    assert (labels.task, labels.classes) == (task, classes)
    assert labels.values.dtype == np.int64
    assert labels.values.tolist() == values


def test_other_floats_are_regression():
    labels = make_labels([0.5, 1.5, 2.25])
    assert (labels.task, labels.classes, labels.values.dtype) == ("regression", (), np.float64)
    assert make_labels([1, 2, 3], "regression").values.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("off", [0, -1])
@pytest.mark.parametrize("kind", [np.float32, np.int8])
def test_matrices_are_multilabel(off, kind):
    raw = np.array([[1, off], [off, 1], [1, 1]], dtype=kind)
    labels = make_labels(raw)
    assert (labels.task, labels.classes, labels.values.dtype) == ("multilabel", ("0", "1"), np.uint8)
    assert labels.values.tolist() == [[1, 0], [0, 1], [1, 1]]
    assert labels.signs().tolist() == [[1, -1], [-1, 1], [1, 1]]


def test_sparse_indicator_and_explicit_single_label():
    assert make_labels(csr_array(np.eye(3))).values.tolist() == np.eye(3).tolist()
    assert make_labels([[0], [1]], "multilabel").values.shape == (2, 1)


def test_multiclass_can_be_asked_of_two_classes():
    labels = make_labels([0, 1, 1], "multiclass")
    assert labels.task == "multiclass"
    assert labels.signs().tolist() == [[1, -1], [-1, 1], [-1, 1]]


@pytest.mark.parametrize(
    ("raw", "task", "message"),
    [
        ([0.0, np.nan, 1.0], "auto", "label of row 1 is nan"),
        ([0.5, 1.0, np.inf], "regression", "label of row 2 is inf"),
        (["a", ""], "auto", "label of row 1 is an empty text"),
        ([3, 3, 3], "auto", r"one class only \('3'\)"),
        ([5], "auto", "one class only"),
        ([[1, 1], [1, 0]], "auto", "label column 0 is all-positive"),
        ([[1, 0], [0, 0]], "auto", "label column 1 is all-negative"),
        ([[1, 2], [0, 1]], "auto", "row 0, column 1 is 2"),
        ([[1, 0], [-1, 1]], "auto", "0/1 or -1/"),
        ([["a", "b"], ["b", "a"]], "auto", "not text"),
        (np.array([1, "a", None], dtype=object), "auto", "neither numbers nor text"),
        ([1 + 2j, 3], "auto", "neither numbers nor text"),
        ([], "auto", "labels are empty"),
        (np.empty((3, 0)), "auto", "labels are empty"),
        (3, "auto", r"not of shape \(\)"),
        (np.zeros((2, 2, 2)), "auto", r"not of shape \(2, 2, 2\)"),
        ([[1, 0], [1]], "auto", "ragged"),
        ([1, 2, 3], "binary", "the labels hold 3 classes"),
        ([0, 1], "multilabel", "needs a matrix"),
        ([[1, 0], [0, 1]], "multiclass", r"one label a sample, not a matrix of shape \(2, 2\)"),
        (["a", "b"], "regression", "needs numbers"),
    ],
)
def test_refusals(raw, task, message):
    with pytest.raises(DataError, match=message):
        make_labels(raw, task)


def test_unknown_task():
    with pytest.raises(ConfigError, match="did you mean 'multiclass'"):
        make_labels([0, 1], "multi-class")


def test_regression_has_no_signs():
    with pytest.raises(DataError, match="no classes"):
        make_labels([0.5, 1.5, 2.5]).signs()


@quick
@given(codes)
def test_signs_say_which_class(row):
    labels = make_labels(row)
    signs = labels.signs()
    assert set(signs.flat) <= {-1.0, 1.0}
    if labels.task == "binary":
        assert signs.shape == (len(row), 1)
        assert ((signs[:, 0] > 0) == (np.array(row) == max(row))).all()
    else:
        assert signs.shape == (len(row), len(set(row)))
        assert ((signs > 0).sum(axis=1) == 1).all()
        assert [labels.classes[code] for code in signs.argmax(axis=1)] == [str(label) for label in row]


@quick
@given(codes, st.data())
def test_take_commutes_with_signs(row, data):
    labels = make_labels(row)
    indices = data.draw(st.lists(st.integers(0, len(row) - 1), max_size=10))
    taken = labels.take(indices)
    assert len(taken) == len(indices)
    assert taken.classes == labels.classes
    assert (taken.signs() == labels.signs()[np.array(indices, dtype=int)]).all()
    mask = np.array(row) > 0
    assert (labels.take(mask).values == labels.values[mask]).all()


@quick
@given(codes, st.data())
def test_encode_like_agrees_with_learning(row, data):
    labels = make_labels(row)
    assert (encode_like(row, labels).values == labels.values).all()
    some = data.draw(st.lists(st.sampled_from(row), min_size=1, max_size=5))
    for raw in (some, np.array(some, dtype=np.float32), [str(label) for label in some]):
        encoded = encode_like(raw, labels)
        assert [encoded.classes[code] for code in encoded.values] == [str(label) for label in some]


def test_encode_like_for_matrices_and_targets():
    several = make_labels([[1, 0], [0, 1]])
    assert encode_like([[-1, -1]], several).values.tolist() == [[0, 0]]
    assert encode_like([2, 3], make_labels([0.5, 1.5, 2.5])).values.tolist() == [2.0, 3.0]
    assert encode_like([[1], [0]], make_labels([0, 1])).values.tolist() == [1, 0]
    assert encode_like([1, 0], make_labels([[0], [1]], "multilabel")).values.tolist() == [[1], [0]]


@pytest.mark.parametrize(
    ("raw", "learnt", "message"),
    [
        (["a", "d"], ["a", "b", "c"], "class 'd' does not occur in the training labels; known: a, b, c"),
        ([0, 1], [-1, 1], "class '0' does not occur in the training labels"),
        ([[1, 0, 0]], [[1, 0], [0, 1]], "labels have 3 columns, the training labels 2"),
        ([[1, 0]], [0, 1], "one label a sample"),
        (["a"], [0.5, 1.5, 2.5], "needs numbers"),
        ([np.nan], [0, 1], "row 0 is nan"),
    ],
)
def test_encode_like_refusals(raw, learnt, message):
    with pytest.raises(DataError, match=message):
        encode_like(raw, make_labels(learnt))
