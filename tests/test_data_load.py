"""Views, data sets, what is discovered in files, and the division into training and test samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array

from dmkl.config import DataConfig, ViewConfig
from dmkl.data import (
    EXAMPLES,
    Dataset,
    encode_like,
    load_dataset,
    load_split,
    make_labels,
    make_view,
    read_source,
    split,
)
from dmkl.errors import ConfigError, DataError

quick = settings(database=None, deadline=None, max_examples=40)
N = 12
X = np.random.default_rng(0).normal(size=(N, 3))
Y = np.arange(N) % 3


def symmetric(n, seed=0, diagonal=True):
    half = np.random.default_rng(seed).random((n, n))
    square = half + half.T
    if not diagonal:
        np.fill_diagonal(square, 0)
    return square


def saved(tmp_path, name="t.npz", **arrays):
    np.savez(tmp_path / name, **arrays)
    return DataConfig(path=(str(tmp_path / name),))


def table(tmp_path, text):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    return DataConfig(path=(str(tmp_path / "t.csv"),))


def labelled(values, **views):
    return Dataset({name: make_view(name, "features", v) for name, v in views.items()}, make_labels(values))


# --- views


@pytest.mark.parametrize(
    ("given_type", "kept"),
    [
        ("f8", "f8"),
        (">f8", "f8"),
        ("f4", "f4"),
        ("f2", "f4"),
        ("u1", "f4"),
        ("i8", "f8"),
        ("?", "f8"),
        ("u2", "f8"),
    ],
)
def test_types_of_views(given_type, kept):
    raw = np.array([[0, 1], [1, 0]], dtype=given_type)
    view = make_view("v", "features", raw)
    assert view.values.dtype == np.dtype(kept)
    assert view.values.tolist() == [[0, 1], [1, 0]]
    assert make_view("v", "features", csr_array(X != 0).astype("f4")).values.dtype == np.float32


def test_column_and_sparse_views():
    assert make_view("v", "features", [1, 2, 3]).values.tolist() == [[1], [2], [3]]
    raw = coo_array((np.array([1, 2, 0], "u1"), ([0, 0, 1], [2, 2, 0])), shape=(2, 3))
    view = make_view("v", "features", raw)
    assert isinstance(view.values, csr_array)
    assert (view.values.dtype, view.values.nnz) == (np.float32, 1)
    assert view.values.toarray().tolist() == [[0, 0, 3], [0, 0, 0]]


def test_making_a_sparse_view_leaves_its_source_alone():
    raw = csr_array((np.array([1.0, 2.0]), np.array([2, 0]), np.array([0, 2])), shape=(1, 3))
    make_view("v", "features", raw)
    assert raw.indices.tolist() == [2, 0]


bad = np.ones((3, 2))
bad[1, 1] = np.nan
sparse_bad = csr_array(np.array([[0, 1.0], [0, 0], [0, np.inf]]))


@pytest.mark.parametrize(
    ("kind", "raw", "message"),
    [
        ("features", bad, "view 'v' holds nan in row 1, column 1"),
        ("features", [1, np.inf], "view 'v' holds inf in row 1, column 0"),
        ("features", sparse_bad, "view 'v' holds inf in row 2, column 1"),
        ("kernel", np.diag([1, np.inf]), "view 'v' holds inf in row 1, column 1"),
        ("features", np.full((2, 2), 1e300, np.longdouble) ** 2, "holds inf in row 0, column 0"),
        ("features", np.ones((2, 2)) * 1j, "holds complex128 values"),
        ("features", np.array([[1, None]], dtype=object), "holds object values"),
        ("features", [["a"], ["b"]], "holds <U1 values"),
        ("features", csr_array(np.eye(2) * 1j), "holds complex128 values"),
        ("features", [[1, 2], [3]], "ragged"),
        ("features", np.ones((2, 2, 2)), r"has shape \(2, 2, 2\)"),
        ("features", np.ones((0, 2)), "is empty"),
        ("features", np.ones((2, 0)), "is empty"),
        ("distance", csr_array(np.eye(2)), "distance view 'v' is sparse"),
        ("distance", np.ones(5), "neither square nor a triangle: 5 values"),
    ],
)
def test_refused_views(kind, raw, message):
    with np.errstate(over="ignore"), pytest.raises(DataError, match=message):
        make_view("v", kind, raw)


def test_unknown_kind():
    with pytest.raises(ConfigError, match="did you mean 'features'"):
        make_view("v", "feature", X)


@quick
@given(st.integers(2, 15), st.booleans(), st.sampled_from(["f2", "f4", "f8"]))
def test_triangles_become_the_squares_they_were_cut_from(n, told, kind):
    distances = symmetric(n, diagonal=False).astype(kind)
    kernel = symmetric(n).astype(kind)
    hint = n if told else None
    assert (make_view("d", "distance", distances[np.triu_indices(n, 1)], n=hint).values == distances).all()
    assert (make_view("k", "kernel", kernel[np.triu_indices(n)], n=hint).values == kernel).all()
    # only the number of samples tells a triangle with zeros on its diagonal from one without it
    assert (make_view("d", "distance", distances[np.triu_indices(n)], n=n).values == distances).all()


def test_refused_triangles():
    with pytest.raises(DataError, match="10 values in its triangle; 7 samples need 21 without the diagonal or 28"):
        make_view("d", "distance", np.ones(10), n=7)
    with pytest.raises(DataError, match="kernel view 'k' lacks its diagonal; give the 15 values"):
        make_view("k", "kernel", np.ones(10), n=5)


# --- data sets


def test_rows_must_agree():
    with pytest.raises(DataError, match="at least one view"):
        Dataset({})
    with pytest.raises(DataError, match="view 'b' has 3 rows, view 'a' has 2"):
        Dataset({"a": make_view("a", "features", [1, 2]), "b": make_view("b", "features", [1, 2, 3])})
    with pytest.raises(DataError, match="labels of the wrong length: 2 labels for 3 samples"):
        labelled([0, 1], a=[1, 2, 3])


def test_take_and_train_test():
    square = symmetric(N)
    views = {
        "x": make_view("x", "features", X),
        "s": make_view("s", "features", csr_array(X)),
        "k": make_view("k", "kernel", square),
    }
    dataset = Dataset(views, make_labels(Y))
    rows = dataset.take([4, 1])
    assert (rows.n, rows.views["k"].values.shape) == (2, (2, N))
    assert (rows.views["s"].values.toarray() == X[[4, 1]]).all()
    assert rows.labels.values.tolist() == [1, 1]
    mask = np.arange(N) < 8
    for train_rows, test_rows in ((mask, ~mask), (list(range(8)), list(range(8, N)))):
        train, test = dataset.train_test(train_rows, test_rows)
        assert (train.views["k"].values == square[:8, :8]).all()
        assert (test.views["k"].values == square[8:, :8]).all()
        assert (test.views["x"].values == X[8:]).all()
        assert (test.labels.values == Y[8:]).all()
    with pytest.raises(DataError, match=r"kernel view 'k' has shape \(2, 12\), which is not square"):
        rows.train_test([0], [1])


def test_fingerprint_sees_content_and_nothing_else():
    def made(values=X, labels=Y, kind="features", order=("a", "b")):
        blocks = {"a": values, "b": csr_array(np.maximum(X, 0))}
        views = {name: make_view(name, kind if name == "a" else "features", blocks[name]) for name in order}
        return Dataset(views, None if labels is None else make_labels(labels)).fingerprint()

    same = made()
    assert len(same) == 32
    assert same == made(np.asfortranarray(X)) == made(order=("b", "a"))
    square = symmetric(N)
    others = [
        made(X + 1e-9),
        made(X.astype("f4")),
        made(X[:, ::-1]),
        made(csr_array(X)),
        made(labels=None),
        made(labels=Y[::-1]),
        made(labels=Y + 1),
        made(order=("a",)),
        made(square),
        made(square, kind="kernel"),
        made(square, kind="distance"),
    ]
    assert len({same, *others}) == 1 + len(others)


# --- loading


def test_announced_views_are_discovered(tmp_path):
    config = saved(
        tmp_path,
        X_a=X.astype("f2"),
        D_hue=symmetric(N, diagonal=False)[np.triu_indices(N, 1)].astype("f2"),
        K_g=symmetric(N),
        y=Y,
        train_idx=np.zeros((2, 3)),
    )
    dataset = load_dataset(config, {})
    assert {name: view.kind for name, view in dataset.views.items()} == {
        "a": "features",
        "hue": "distance",
        "g": "kernel",
    }
    assert dataset.views["hue"].values.shape == (N, N)
    assert dataset.labels.task == "multiclass"


def test_a_single_matrix_and_several_files(tmp_path):
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", Y)
    both = DataConfig(path=(str(tmp_path / "X.npy"), str(tmp_path / "y.npy")))
    dataset = load_dataset(both, {})
    assert list(dataset.views) == ["X"]
    assert (dataset.n, len(dataset.labels)) == (N, N)
    saved(tmp_path, y=Y)
    clash = DataConfig(path=(*both.path, str(tmp_path / "t.npz")))
    with pytest.raises(DataError, match=r"both .*y.npy and .*t.npz hold an array 'y'"):
        load_dataset(clash, {})


TABLE = "height,width,f_1,f_2,kind,y,fold\n1,2,3,4,a,0,1\n5,6,7,8,b,1,1\n9,10,11,12,a,0,0\n13,14,15,16,b,1,1\n"


def test_tables(tmp_path):
    config = table(tmp_path, TABLE)
    config = DataConfig(path=config.path, split="fold")
    dataset = load_dataset(config, {})
    assert list(dataset.views) == ["features"]
    assert dataset.views["features"].values[1].tolist() == [5, 6, 7, 8]
    views = {
        "f": ViewConfig(columns=("f_*",)),
        "w": ViewConfig(columns=("width", "h*")),
        "all": ViewConfig(columns=("*",)),
        "kind": ViewConfig(array="f_2"),
        "f_1": ViewConfig(),
    }
    dataset = load_dataset(config, views)
    found = {name: view.values[0].tolist() for name, view in dataset.views.items()}
    assert found == {"f": [3, 4], "w": [1, 2], "all": [1, 2, 3, 4], "kind": [4], "f_1": [3]}
    train, test = load_split(config, {}, 0)
    assert (train.n, test.n) == (3, 1)
    text = load_dataset(DataConfig(path=config.path, labels="kind"), {"f": ViewConfig(columns=("f_*",))})
    assert text.labels.classes == ("a", "b")


@pytest.mark.parametrize(
    ("view", "error", "message"),
    [
        (
            ViewConfig(columns=("heigth",)),
            DataError,
            "'heigth' of view 'v' matches no numeric column; did you mean 'height'",
        ),
        (ViewConfig(columns=("kind",)), DataError, "column 'kind' of view 'v' holds <U1 values"),
        (ViewConfig(columns=("f_*", "y")), DataError, "column 'y', which holds the labels or the split"),
        (ViewConfig(array="hight"), DataError, "no array 'hight' for view 'v'; did you mean 'height'"),
        (ViewConfig(), DataError, "no array 'X_v' for view 'v'"),
        (ViewConfig(kind="kernel"), DataError, "no array 'K_v' for view 'v'"),
        (ViewConfig(array="y", columns=("f_1",)), ConfigError, "both array and columns"),
        (
            ViewConfig(array="f_1", kind="kernels"),
            ConfigError,
            "unknown kind 'kernels' of view 'v'; did you mean 'kernel'",
        ),
        (ViewConfig(array="kind"), DataError, "view 'v' holds <U1 values"),
        (ViewConfig(array="f_1", kind="kernel"), DataError, "not square nor|neither square"),
    ],
)
def test_refused_view_tables(tmp_path, view, error, message):
    with pytest.raises(error, match=message):
        load_dataset(table(tmp_path, TABLE), {"v": view})


def test_named_views_of_other_kinds(tmp_path):
    distances = symmetric(N, diagonal=False)
    config = saved(tmp_path, D_a=distances[np.triu_indices(N)], b=symmetric(N), y=Y)
    dataset = load_dataset(config, {"a": ViewConfig(kind="distance"), "b": ViewConfig(kind="kernel")})
    assert (dataset.views["a"].values == distances).all()
    assert dataset.views["b"].kind == "kernel"


def test_labels_wanted_or_not(tmp_path):
    config = saved(tmp_path, X=X, Y=Y)
    with pytest.raises(DataError, match=r"no array 'y' for the labels; did you mean 'Y'?"):
        load_dataset(config, {})
    assert load_dataset(config, {}, labels_needed=False).labels is None
    learnt = make_labels(Y)
    assert load_dataset(config, {}, labels_needed=False, like=learnt).labels is None
    one_class = saved(tmp_path, X=X, y=np.full(N, 2))
    assert load_dataset(one_class, {}, labels_needed=False).labels is None
    encoded = load_dataset(one_class, {}, labels_needed=False, like=learnt).labels
    assert encoded.values.tolist() == encode_like([2] * N, learnt).values.tolist() == [2] * N
    with pytest.raises(DataError, match="one class only"):
        load_dataset(one_class, {})


def test_refused_sources(tmp_path):
    with pytest.raises(ConfigError, match="neither path nor example"):
        read_source(DataConfig())
    with pytest.raises(ConfigError, match="did you mean 'digits'"):
        read_source(DataConfig(example="digit"))
    with pytest.raises(DataError, match=r"no views found among the arrays: pixels float64\[12, 3\], y int64\[12\]"):
        load_dataset(saved(tmp_path, pixels=X, y=Y), {})
    with pytest.raises(DataError, match="no views found"):
        load_dataset(saved(tmp_path, y=Y), {})
    with pytest.raises(DataError, match="two arrays make a view 'a', one of them 'D_a'"):
        load_dataset(saved(tmp_path, X_a=X, D_a=symmetric(N), y=Y), {})
    with pytest.raises(DataError, match="labels of the wrong length: 11 labels for 12 samples"):
        load_dataset(saved(tmp_path, X_a=X, y=Y[1:]), {})
    with pytest.raises(DataError, match="columns 'a' and 'b' have 12 and 11 rows"):
        load_dataset(saved(tmp_path, a=Y, b=Y[1:], y=Y), {"v": ViewConfig(columns=("*",))})


def test_hints_stay_short_in_wide_tables(tmp_path):
    config = saved(tmp_path, **{f"pixel_{i}": Y for i in range(400)}, y=Y)
    with pytest.raises(DataError, match="did you mean 'pixel_3'") as caught:
        load_dataset(config, {"v": ViewConfig(columns=("pixl_3",))})
    assert len(str(caught.value)) < 500


# --- splits


@quick
@given(
    st.lists(st.integers(0, 4), min_size=4, max_size=40).filter(lambda row: len(set(row)) > 1),
    st.floats(0.01, 0.99),
    st.integers(0, 5),
)
def test_random_splits_keep_every_class_and_repeat(row, fraction, seed):
    dataset = labelled(row, x=np.arange(len(row)))
    config = DataConfig(test=fraction)
    try:
        train, test = split(dataset, config, seed)
    except DataError as error:
        assert "leaves none" in str(error)  # noqa: PT017 - refusing is one of two right ends
        return
    again = split(dataset, config, seed)
    assert [part.fingerprint() for part in again] == [train.fingerprint(), test.fingerprint()]
    drawn = np.concatenate([train.views["x"].values, test.views["x"].values])[:, 0]
    assert sorted(drawn) == list(range(len(row)))
    held = np.bincount(test.labels.values, minlength=5)
    counts = np.bincount(dataset.labels.values, minlength=5)
    assert set(train.labels.values) == set(dataset.labels.values)
    assert (np.abs(held - fraction * counts) <= 1 + 1e-9).all()


def test_random_split_sizes_and_seeds():
    dataset = labelled(np.repeat(np.arange(10), 16), x=np.arange(160))
    parts = [split(dataset, DataConfig(test=0.3), seed) for seed in (0, 1)]
    assert [test.n for _, test in parts] == [48, 48]
    assert parts[0][1].fingerprint() != parts[1][1].fingerprint()
    assert split(dataset, DataConfig(test=0.0), 0) == (dataset, None)


def test_single_samples_of_a_class_are_trained_on():
    train, test = split(labelled([0, 1, 1, 1, 1, 2], x=np.arange(6)), DataConfig(test=0.6), 0)
    assert set(train.labels.values) == {0, 1, 2}
    assert set(test.labels.values) == {1}


@pytest.mark.parametrize("seed", range(5))
def test_multilabel_and_regression_splits(seed):
    indicator = np.zeros((20, 3), dtype=int)
    indicator[:10, 0] = 1
    indicator[seed, 1] = 1
    indicator[:, 2] = 1
    indicator[seed + 1, 2] = 0
    train, test = split(labelled(indicator, x=np.arange(20)), DataConfig(test=0.5), seed)
    share = train.labels.values.mean(axis=0)
    assert ((share > 0) & (share < 1)).all()
    assert train.n + test.n == 20
    train, test = split(labelled(np.arange(20) + 0.5, x=np.arange(20)), DataConfig(test=0.25), seed)
    assert (train.n, test.n) == (15, 5)
    train, test = split(Dataset({"x": make_view("x", "features", X)}), DataConfig(test=0.25), seed)
    assert (train.n, test.n) == (9, 3)


@pytest.mark.parametrize("kind", [np.bool_, np.int8, np.float64])
def test_marked_split(tmp_path, kind):
    marks = (np.arange(N) >= 4).astype(kind)
    square = symmetric(N)
    config = saved(tmp_path, X_a=X, K_b=square, y=Y, is_train=marks)
    train, test = load_split(DataConfig(path=config.path, split="is_train"), {}, 0)
    assert (train.views["a"].values == X[4:]).all()
    assert (train.views["b"].values == square[4:, 4:]).all()
    assert (test.views["b"].values == square[:4, 4:]).all()


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        (np.arange(5), r"split 'm' has shape \(5,\) for 12 samples"),
        (np.arange(N), "values other than 0 and 1"),
        (np.array(["train"] * N), "values other than 0 and 1"),
        (np.ones(N), "marks 12 of 12 samples"),
        (np.zeros(N), "marks 0 of 12 samples"),
        (np.arange(N) % 3 > 0, "class '0' has no training sample"),
    ],
)
def test_refused_marks(tmp_path, marks, message):
    config = saved(tmp_path, X=X, y=Y, m=marks)
    with pytest.raises(DataError, match=message):
        load_split(DataConfig(path=config.path, split="m"), {}, 0)


def test_refused_splits(tmp_path):
    config = saved(tmp_path, X=X, y=Y, is_train=Y)
    with pytest.raises(DataError, match="no array 'istrain' for the split; did you mean 'is_train'"):
        load_split(DataConfig(path=config.path, split="istrain"), {}, 0)
    with pytest.raises(DataError, match=r"a test fraction of 0.3 leaves none of 2 samples"):
        split(labelled([0, 1], x=[1, 2]), DataConfig(), 0)
    with pytest.raises(ConfigError, match=r"fraction in \[0, 1\), not 1.5"):
        split(labelled([0, 1], x=[1, 2]), DataConfig(test=1.5), 0)
    several = labelled([[1, 0], [1, 0], [0, 1], [1, 1]], x=[1, 2, 3, 4])
    with pytest.raises(DataError, match="class '1' has no training sample"):
        split(several, DataConfig(split="m"), 0, np.array([1, 1, 0, 0]))
    with pytest.raises(DataError, match="class '0' has no negative training sample"):
        split(several, DataConfig(split="m"), 0, np.array([1, 0, 0, 1]))


@pytest.mark.parametrize("test", [0.0, 0.3])
def test_training_needs_square_symmetric_relations(test):
    wide = Dataset({"d": make_view("d", "distance", np.ones((4, 3)))}, make_labels([0, 1, 0, 1]))
    with pytest.raises(DataError, match=r"distance view 'd' has shape \(4, 3\), which is not square"):
        split(wide, DataConfig(test=test), 0)
    square = symmetric(4)
    square[1, 3] += 1
    skew = Dataset({"k": make_view("k", "kernel", square)}, make_labels([0, 1, 0, 1]))
    with pytest.raises(DataError, match=r"kernel view 'k' is not symmetric: .* in row 1, column 3"):
        split(skew, DataConfig(test=test), 0)


# --- examples


def test_every_example_loads():
    for name in EXAMPLES:
        dataset = load_dataset(DataConfig(example=name), {})
        assert dataset.n > 400


def test_digits_are_four_informative_views():
    train, test = load_split(DataConfig(example="digits"), {}, 0)
    assert sorted(train.views) == ["fourier", "gradients", "pixels", "profiles"]
    assert (train.n, test.n) == (1258, 539)
    votes = 0.0
    for name, view in train.views.items():  # nearest class means are a lower bound for any kernel machine
        means = np.stack([view.values[train.labels.values == code].mean(axis=0) for code in range(10)])
        distances = ((test.views[name].values[:, None] - means) ** 2).sum(axis=2)
        accuracy = (distances.argmin(axis=1) == test.labels.values).mean()
        assert accuracy > 0.7, name
        votes = votes + distances / distances.mean()
    assert (votes.argmin(axis=1) == test.labels.values).mean() > 0.9
