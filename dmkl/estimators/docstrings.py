"""The text that the docstrings of all estimators share.

A class writes its objective, its own constants and its example; `complete` fills in the parameters and attributes that
every estimator has, so that `help` shows all of them and each is written once.
"""

from __future__ import annotations

import inspect

INPUTS = """
kernels : sequence of mappings, "precomputed" or None, default None
    Tables such as those of a configuration file, e.g. `{"kernel": "rbf", "width": ["1 median", 2.0]}`: one kernel for
    each value and view. None stands for Gaussian kernels whose widths are 0.5, 1 and 2 times the median distance. With
    "precomputed", X is a stack of kernels of shape (n, n, s) in `fit` and (n_new, n, s) in `predict`.
views : mapping of str to columns, or None, default None
    Named groups of columns of X, e.g. `{"colour": slice(0, 3), "size": ["height", "width"]}`; selectors such as
    `sklearn.compose.make_column_selector` are allowed. Every kernel is computed for each view. None stands for one
    view, "x", of all columns. With precomputed kernels, `views` divides the last axis of the stack into groups.
n_jobs : int or None, default None
    Number of threads; None means 1 unless inside `joblib.parallel_config`, -1 means all cores. The result does not
    depend on it."""

SOLVING = """
tol : float, default 1e-3
    The relative gap to certify: `fit` ends when (objective - lower bound) / |objective| is at most `tol`.
method : str or None, default None
    The algorithm, such as "mirror-paper"; None for the formulation's default. README lists those of each formulation.
oracle : {"smo", "libsvm"} or None, default None
    The SVM solver; None for "smo". Algorithms that solve no SVMs refuse "libsvm".
max_seconds : float, default inf
    Time limit of solving, once the kernels are computed, after which the best model so far is kept with a
    `ConvergenceWarning`.
seed : int, default 0
    Seed of starting points and of randomised methods.
cluster : str, default "none"
    Where the tasks run: "none" for threads of this process, "local:4" for four worker processes, the address of a Dask
    scheduler such as "tcp://head:8786" or "tls://head:8786", or "current" for the current Dask client. The result does
    not depend on it."""

CLASS_WEIGHT = """
class_weight : mapping, "balanced" or None, default None
    Factors of the sample weights by class; "balanced" makes them inversely proportional to the class frequencies."""

FITTED = """
kernel_names_ : list of s str
    View, kernel and constants of each kernel, e.g. "x/rbf(width=1 median)".
intercept_ : array of shape (m,)
    The constant part of the scores.
gap_ : float
    The certified relative gap; the largest one where each class is a problem of its own.
n_passes_ : int
    How often the kernel matrices were read from end to end.
model_ : dmkl.model.Model
    The model; `dmkl.model.save_model` writes it to a file.
columns_ : dict of str to arrays of int, or None
    The columns of each view, or the kernels of each group; None if X was a dict or a store.
n_features_in_ : int
    Number of columns of X, if X was an array or a table.
feature_names_in_ : array of str
    Names of the columns, if X had names."""

CLASSES = """
classes_ : array of shape (n_classes,)
    The classes in sorted order."""

RAISES = """
ConfigError
    From `fit`, if a constant is out of its range, or if a kernel or a column is unknown.
DataError
    From `fit` and `predict`, if a view is missing or has the wrong shape.
SolverError
    From `fit`, if a kernel is not positive semidefinite but has to be."""


def complete(docstring: str, sections: dict[str, str]) -> str:
    """The docstring with the shared text in place of `<section>`."""
    text = inspect.cleandoc(docstring)
    for name, section in sections.items():
        text = text.replace(f"<{name}>", section.strip("\n"))
    return text
