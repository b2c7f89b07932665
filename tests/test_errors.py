"""Wrong input, one row for each case: the command, the files, and the exact exit code, error and hint."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from conftest import three_classes
from test_cli import CONFIG

import dmkl
from dmkl.cli.main import main
from dmkl.errors import EXIT_CODES, DmklError

DATA = three_classes(120)
ARRAYS = {f"X_{name}": np.asarray(view.values) for name, view in DATA.views.items()}
GAPS = np.where(np.arange(360).reshape(120, 3) == 16, np.nan, 1.0)
SCHEDULERS = "SCHEDULER[:PROFILE] (slurm, moab, pbs, sge, lsf, htcondor, oar)"
PLACES = f"use none, local[:N[xT]], {SCHEDULERS}, tcp://HOST:PORT or tls://HOST:PORT of a Dask scheduler, or current"
CORRECT = "correct it in the configuration, after -s or in the environment"


class Case(NamedTuple):
    """One case. `files` maps names of files to texts, or names of arrays to what data.npz holds instead.

    FOLDER stands for the working directory."""

    command: str
    files: dict[str, Any]
    code: int
    error: str
    hint: str


CASES = [
    Case(
        "train",
        {},
        2,
        "exactly one of a configuration file, a kernel store and --example is needed",
        "see dmkl train --help",
    ),
    Case("trian config.toml", {}, 2, "No such command 'trian'. Did you mean 'train'?", "see dmkl --help"),
    Case(
        "train config.toml --tolerance 1",
        {},
        2,
        "No such option '--tolerance'. (Did you mean one of: '--oracle', '--tol'?)",
        "see dmkl train --help",
    ),
    Case(
        "train config.toml --tol tiny",
        {},
        2,
        "Invalid value for '--tol': 'tiny' is not a valid float.",
        "see dmkl train --help",
    ),
    Case(
        "train --example digitz", {}, 2, "unknown example 'digitz'", "did you mean 'digits'? (known: diabetes, digits)"
    ),
    Case("train none.toml", {}, 2, "no such config file: none.toml", "write one with: dmkl init DATA"),
    Case(
        "train broken.toml",
        {"broken.toml": "[data\npath = 1\n"},
        2,
        "broken.toml is not valid TOML: Expected ']' at the end of a table declaration (at line 1, column 6)",
        "correct that line",
    ),
    Case(
        "train config.toml",
        {"config.toml": CONFIG.replace("test =", "tset =")},
        2,
        "unknown key 'tset' in [data]",
        "did you mean 'test'? (known: example, labels, path, split, task, test)",
    ),
    Case(
        "train config.toml",
        {"config.toml": CONFIG.replace("[run]", "[runs]")},
        2,
        "unknown key 'runs' in the configuration",
        "did you mean 'run'? (known: cluster, data, formulation, kernels, run, solve, tune, views)",
    ),
    Case(
        "train config.toml",
        {"config.toml": CONFIG.replace('"rbf"', '"rfb"')},
        2,
        "unknown kernel 'rfb'",
        "did you mean 'rbf'? (known: additive_chi2, chi2, distance, intersection, kl, laplacian, "
        "linear, poly, precomputed, rbf, sigmoid, similarity)",
    ),
    Case(
        "train config.toml",
        {"config.toml": CONFIG.replace('width = ["0.5 median", "1 median"]', "with = 2")},
        2,
        "unknown key 'with' in kernel points/rbf(with=2)",
        "did you mean 'width'? (known: width)",
    ),
    Case(
        "train config.toml",
        {"config.toml": CONFIG.replace('"0.5 median"', '"0.5 medium"')},
        2,
        "kernel points/rbf(width=0.5 medium): width '0.5 medium' is not understood",
        "use a number or a multiple: '0.5 median', '0.5 mean', '0.5 scale'",
    ),
    Case(
        "train config.toml",
        {"config.toml": CONFIG.replace('"unit-trace"', '["unit-trace", "centre"]')},
        2,
        "normalise = ['unit-trace', 'centre'] is not in the order they apply",
        "use unit-diagonal, then centre, then one of unit-trace and unit-mean",
    ),
    Case(
        "train config.toml",
        {"config.toml": CONFIG.replace('kernel = "linear"', 'kernel = "linear"\nviews = "colour"')},
        2,
        "kernel 'linear': no view 'colour'",
        "known: points, words",
    ),
    Case(
        "train config.toml",
        {"config.toml": CONFIG.replace('kernel = "linear"', 'kernel = "chi2"').replace('normalise = "unit-trace"', "")},
        4,
        "kernel 'chi2' needs features >= 0, view 'points' has negative ones",
        "correct the data, or name other arrays in [data] and [views]",
    ),
    Case(
        "train config.toml",
        {"config.toml": CONFIG.replace("test = 0.25", 'test = "some"')},
        2,
        "[data] test should be a number, not 'some'",
        CORRECT,
    ),
    Case(
        "train config.toml",
        {"config.toml": CONFIG.replace("test = 0.25", "test = 1.5")},
        2,
        "[data] test should be a fraction in [0, 1), not 1.5",
        "0.3 is usual",
    ),
    Case(
        "train config.toml -s formulation.D=1",
        {},
        2,
        "unknown key 'D' in [formulation]",
        "known: C, epsilon, intercept, loss",
    ),
    Case(
        "train config.toml -s formulation.name=unifrom",
        {},
        2,
        "unknown formulation 'unifrom'",
        "did you mean 'uniform'? (known: l1, lp, mikl, obscure, shared, spicy, uniform, vskl)",
    ),
    Case("train config.toml -s formulation.C=0", {}, 2, "C should be positive and finite, not 0.0", CORRECT),
    Case("train config.toml -s formulation.C=much", {}, 2, "[formulation] C should be a number, not 'much'", CORRECT),
    Case("train config.toml -s tol=1", {}, 2, "cannot set 'tol'", "use SECTION.KEY=VALUE, e.g. formulation.C=10"),
    Case(
        "train config.toml -s solve.tol",
        {},
        2,
        "--set 'solve.tol' lacks '='",
        "write SECTION.KEY=VALUE, e.g. formulation.C=10",
    ),
    Case(
        "train config.toml -s solve.seed=1.5",
        {},
        2,
        "[solve] seed, from the command line, should be a whole number, not 1.5",
        CORRECT,
    ),
    Case("train config.toml -s solve.tol.x=1", {}, 2, "[solve] tol should be a number, not {'x': 1}", CORRECT),
    Case(
        "train config.toml --oracle libsvn",
        {},
        2,
        "unknown oracle 'libsvn'",
        "did you mean 'libsvm'? (known: libsvm, smo)",
    ),
    Case(
        "train config.toml -s formulation.name=vskl -s solve.method=mirrors",
        {},
        2,
        "unknown method 'mirrors' of VSKL",
        "did you mean 'mirror'? (known: automatic, interior, mirror, mirror-paper, newton)",
    ),
    Case(
        "train config.toml -s formulation.name=mikl -s formulation.norm=21",
        {},
        2,
        "[formulation] norm should be text, not 21",
        CORRECT,
    ),
    Case(
        "train config.toml -s formulation.name=spicy -s formulation.loss=hingee",
        {},
        2,
        "unknown loss 'hingee'",
        "did you mean 'hinge'? (known: epsilon, hinge, logistic, squared)",
    ),
    Case(
        "train config.toml -s formulation.name=shared -s formulation.mode=min",
        {},
        2,
        "mode should be sum or max, not 'min'",
        CORRECT,
    ),
    Case(
        "train config.toml --memory lots",
        {},
        2,
        "'lots' is not an amount of memory",
        "write it like '4 GB' or '512 MiB'",
    ),
    Case("train config.toml --max-time soon", {}, 2, "'soon' is not a time", "write it like '90 s', '30 m' or '2 h'"),
    Case(
        "train config.toml --workers 0",
        {},
        2,
        "Invalid value for '--workers': 0 is not in the range x>=1.",
        "see dmkl train --help",
    ),
    Case(
        "train config.toml -s run.kernels=stored",
        {},
        2,
        "[run] kernels, from the command line, can't be 'stored'",
        "did you mean 'store'? (known: auto, compute, store)",
    ),
    Case("train config.toml --cluster slurn", {}, 2, "'slurn' is not a cluster", PLACES),
    Case(
        "train config.toml --cluster slurm:none",
        {},
        2,
        "no cluster profile cluster/none.toml or /nobody/.config/dmkl/none.toml",
        "make one: mkdir -p cluster; dmkl cluster profile slurm > cluster/slurm.toml",
    ),
    Case(
        "train config.toml --cluster slurm -s cluster.wall=1",
        {},
        2,
        "no cluster profile cluster/slurm.toml or /nobody/.config/dmkl/slurm.toml",
        "make one: mkdir -p cluster; dmkl cluster profile slurm > cluster/slurm.toml",
    ),
    Case(
        "train config.toml --cluster tcp://127.0.0.1:9",
        {},
        7,
        "no scheduler answers at tcp://127.0.0.1:9 (OSError)",
        "start one with: dask scheduler --host 127.0.0.1 --port 9",
    ),
    Case("train config.toml --cluster local:none", {}, 2, "'local:none' is not a cluster", PLACES),
    Case("train config.toml --dry-run", {}, 2, "--dry-run prints the script of worker jobs", "add --cluster slurm"),
    Case(
        "train config.toml --dry-run --cluster pbs",
        {"cluster/slurm.toml": ""},
        2,
        "no cluster profile cluster/pbs.toml or /nobody/.config/dmkl/pbs.toml",
        "make one: mkdir -p cluster; dmkl cluster profile pbs > cluster/pbs.toml",
    ),
    Case(
        "train config.toml --dry-run --cluster htcondor",
        {"cluster/htcondor.toml": 'queue = "long"'},
        2,
        "HTCondor has no queues, so the profile cannot ask for 'long'",
        "leave queue out; requirements go into job_extra_directives",
    ),
    Case(
        "train config.toml --dry-run --cluster htcondor",
        {"cluster/htcondor.toml": 'job_extra_directives = ["-l long"]'},
        2,
        "'-l long' is not a line of HTCondor's submit description",
        'write job_extra_directives like "requirements = Memory > 8000"',
    ),
    Case(
        "train config.toml --memory 1MB",
        {},
        6,
        "the memory limit '1MB' is too small: dmkl itself takes N MB before any work",
        "raise --memory",
    ),
    Case("train config.toml -s data.labels=z", {}, 4, "no array 'z' for the labels", "known: X_points, X_words, y"),
    Case(
        "train config.toml -s data.path=none.npz",
        {},
        4,
        "no such file: FOLDER/none.npz",
        "check the path; relative ones count from the config file",
    ),
    Case(
        "train config.toml -s data.path=words.xls",
        {"words.xls": "x"},
        4,
        "FOLDER/words.xls has an unknown suffix '.xls'",
        "known: .csv, .libsvm, .mat, .npy, .npz, .parquet, .svm, .svmlight, .tsv, .zarr",
    ),
    Case("train config.toml -s data.split=z", {}, 4, "no array 'z' for the split", "known: X_points, X_words, y"),
    Case(
        "train config.toml", {"y": np.zeros(120)}, 4, "the labels hold one class only ('0')", "at least two are needed"
    ),
    Case(
        "train config.toml",
        {"y": np.arange(119) % 3},
        4,
        "labels of the wrong length: 119 labels for 120 samples",
        "view 'points' and the labels should have one row a sample",
    ),
    Case(
        "train config.toml",
        {"y": np.array(["a", None] * 60, dtype=object)},
        4,
        "array 'y' of FOLDER/data.npz is pickled, and pickles are never loaded",
        "save it as numbers or as text, e.g. array.astype(str)",
    ),
    Case(
        "train config.toml",
        {"y": np.where(np.arange(120) == 3, np.nan, 1.0)},
        4,
        "the label of row 3 is nan",
        "leave out samples without a label",
    ),
    Case(
        "train config.toml",
        {"y": np.linspace(0, 1.5, 120)},
        4,
        "real-valued labels have no classes to tell apart",
        'use formulation.name = "spicy" with loss = "squared" or "epsilon"',
    ),
    Case(
        "train config.toml",
        {"X_points": GAPS},
        4,
        "view 'points' holds nan in row 5, column 1",
        "fill or drop missing values before",
    ),
    Case(
        "train config.toml",
        {"X_points": np.full((120, 2), 1e200)},
        4,
        "the sqeuclidean values of view 'points' overflow",
        "rescale the features",
    ),
    Case(
        "train config.toml",
        {"X_points": np.zeros((120, 2))},
        2,
        "kernel points/rbf(width=0.5 median): width '0.5 median': the median is 0",
        "use a number, or leave the view out",
    ),
    Case(
        "train config.toml",
        {"K_given": np.ones((120, 119))},
        4,
        "kernel view 'given' has shape (120, 119), which is not square",
        "training needs all samples against all samples",
    ),
    Case(
        "train config.toml",
        {"K_given": np.triu(np.ones((120, 120)))},
        4,
        "kernel view 'given' is not symmetric: 1 in row 0, column 1, but 0 the other way round",
        "symmetrise it, e.g. (K + K.T) / 2",
    ),
    Case(
        "train config.toml -s formulation.name=vskl",
        {
            "K_given": -np.eye(120),
            "config.toml": CONFIG.replace('"linear"', '"precomputed"').replace('normalise = "unit-trace"', ""),
        },
        9,
        "VSKL needs positive semidefinite kernels and 'given/precomputed()' is not one: over 90 samples "
        "its eigenvalues go from -1 to -1",
        'leave it out, or use formulation.name = "mikl", which takes any kernel, or repair it: dmkl.repair(K, "clip")',
    ),
    Case(
        "train config.toml",
        {"data.npz": "not zip"},
        4,
        "FOLDER/data.npz is not a valid .npz file",
        "write it again with numpy, as a .npz",
    ),
    Case("train config.toml", {"data.npz": ""}, 4, "FOLDER/data.npz is empty", "write or download it again"),
    Case("train config.toml -o finished", {}, 8, "finished holds a finished run", "choose another -o or remove it"),
    Case(
        "train config.toml -o mine",
        {"mine/thesis.tex": "words"},
        8,
        "mine exists and is not a dmkl run",
        "choose another -o",
    ),
    Case("train config.toml -o data.npz", {}, 8, "data.npz exists and is not a dmkl run", "choose another -o"),
    Case(
        "train config.toml -o data.npz/run",
        {},
        8,
        "cannot write data.npz/run: Not a directory",
        "check the path, or choose another -o",
    ),
    Case(
        "train config.toml -o torn",
        {"torn/config.json": "{"},
        5,
        "torn/config.json is damaged (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))",
        "check the path; build or copy a damaged file again",
    ),
    Case(
        "train config.toml -o begun",
        {"begun/config.json": "{}"},
        8,
        "begun holds an unfinished run with a different [data] section",
        "choose another -o or remove it",
    ),
    Case(
        "train config.toml -s solve.max_rounds=0",
        {},
        2,
        "[solve] max_rounds and [run] tile should be at least 1, workers at least 0",
        CORRECT,
    ),
    Case(
        "train config.toml",
        {"DMKL_SOLVE_TOLL": "1"},
        2,
        "environment variable DMKL_SOLVE_TOLL: unknown key 'toll' in [solve]",
        "did you mean 'tol'? (known: baselines, max_rounds, max_time, method, oracle, seed, tol)",
    ),
    Case(
        "train config.toml",
        {"DMKL_SOLVE_TOL": "small"},
        2,
        "[solve] tol, from the environment DMKL_SOLVE_TOL, should be a number, not 'small'",
        CORRECT,
    ),
    Case(
        "train store.zarr -s data.test=0.5",
        {},
        4,
        "FOLDER/store.zarr is already built, so data.test cannot be changed",
        "train from the configuration file",
    ),
    Case(
        "kernels config.toml -o config.toml",
        {},
        5,
        "no kernel store at config.toml",
        "check the path; build or copy a damaged file again",
    ),
    Case("kernels none.toml", {}, 2, "no such config file: none.toml", "write one with: dmkl init DATA"),
    Case(
        "kernels config.toml -o store.zarr -s formulation.C=1 -s data.test=0.5",
        {},
        5,
        "FOLDER/store.zarr was built from other data",
        "choose another place or remove it",
    ),
    Case("predict none data.npz -o o.csv", {}, 8, "no model at none", "train one with: dmkl train"),
    Case("predict finished data.npz -o data.npz", {}, 8, "data.npz exists", "choose another -o or remove it"),
    Case(
        "predict finished data.npz -o o.xls",
        {},
        2,
        "predictions cannot be written to a '.xls' file",
        "use one of .npz, .csv, .parquet",
    ),
    Case(
        "predict finished none.npz -o o.csv",
        {},
        4,
        "no such file: none.npz",
        "check the path; relative ones count from the config file",
    ),
    Case(
        "predict finished data.npz -o none/o.csv",
        {},
        8,
        "cannot write none/o.csv: No such file or directory",
        "check the path, or choose another -o",
    ),
    Case("predict finished data.npz", {}, 2, "Missing option '-o' / '--output'.", "see dmkl predict --help"),
    Case(
        "predict finished/model.zarr.zip points.npz -o o.csv",
        {},
        4,
        "the model needs view 'words', the data lack it",
        "known: points",
    ),
    Case(
        "predict torn data.npz -o o.csv",
        {"torn/model.zarr.zip": "zip"},
        5,
        "torn/model.zarr.zip is not a readable model (BadZipFile: File is not a zip file)",
        "train it again",
    ),
    Case(
        "evaluate finished data.npz",
        {"y": np.array(["new"] * 120)},
        4,
        "class 'new' does not occur in the training labels",
        "known: 0, 1, 2",
    ),
    Case("evaluate finished nolabels.npz", {}, 4, "no array 'y' for the labels", "known: X_points, X_words"),
    Case(
        "info .",
        {},
        5,
        ". is neither a kernel store nor a run directory",
        "give a path that dmkl kernels or dmkl train wrote",
    ),
    Case(
        "info none",
        {},
        5,
        "none is neither a kernel store nor a run directory",
        "give a path that dmkl kernels or dmkl train wrote",
    ),
    Case(
        "info torn.zarr",
        {"torn.zarr/zarr.json": "{}"},
        5,
        "torn.zarr is not a dmkl kernel store",
        "check the path; build or copy a damaged file again",
    ),
    Case("status .", {}, 8, ". is not a run directory", "give a directory that dmkl train wrote"),
    Case(
        "submit config.toml --cluster local:2",
        {},
        2,
        "dmkl submit needs a batch scheduler, not 'local:2'",
        f"use --cluster {SCHEDULERS}",
    ),
    Case(
        "submit config.toml --cluster htcondor",
        {"cluster/htcondor.toml": 'interface = "lo"'},
        2,
        "dmkl submit cannot run a coordinator as a job of HTCondor",
        "run dmkl train on a machine with condor_submit; after an interruption the same command continues",
    ),
    Case("init", {}, 2, "no data file is named", "e.g. dmkl init photos.npz; see dmkl init --help"),
    Case("init none.csv", {}, 4, "no such file: none.csv", "check the path; relative ones count from the config file"),
    Case("init data.npz -o config.toml", {}, 8, "config.toml exists", "choose another -o, or --force to replace it"),
    Case("init data.npz --labels Y", {}, 4, "no array or column 'Y'", "name it with --labels NAME; did you mean 'y'?"),
    Case(
        "init table.csv",
        {"table.csv": "a,b\n1,2\n"},
        4,
        "cannot tell what the labels of table.csv are",
        "name it with --labels NAME; known: a, b",
    ),
    Case(
        "init table.csv --labels b",
        {"table.csv": "a,b\n1,2\n1,3\n"},
        4,
        "no column can be used: a is constant",
        "give numbers that differ between samples",
    ),
    Case(
        "init table.csv --labels b",
        {"table.csv": "a,b\n1,2\n,3\n"},
        4,
        "table.csv: row 2 (line 3) has an empty cell in column 'a'",
        "fill it or drop the row",
    ),
    Case(
        "tune config.toml -g c=1", {}, 2, "no formulation here has a constant 'c'", "known: C, epsilon, intercept, loss"
    ),
    Case("tune config.toml -g C", {}, 2, "--grid 'C' is not understood", "write NAME=VALUE,VALUE, e.g. C=1,10,100"),
    Case(
        "tune config.toml -g C=1,,2",
        {},
        2,
        "--grid 'C=1,,2' is not understood",
        "write NAME=VALUE,VALUE, e.g. C=1,10,100",
    ),
    Case(
        "tune config.toml -g C=1 -g C=2",
        {},
        2,
        "--grid names a constant twice",
        "give all its values at once, e.g. C=1,10,100",
    ),
    Case("tune config.toml -g C=0", {}, 2, "C should be positive and finite, not 0.0", CORRECT),
    Case("tune config.toml -g C=many", {}, 2, "the grid of uniform: C should be a number, not 'many'", CORRECT),
    Case(
        "tune config.toml -s tune.grid.C=3",
        {},
        2,
        "the values of C should be a list, not 3",
        "write C = [1, 10], or -g C=1,10",
    ),
    Case(
        "tune config.toml -s tune.grid=3",
        {},
        2,
        "[tune] grid, from the command line, should be a table, not 3",
        CORRECT,
    ),
    Case(
        "tune config.toml -s formulation.D=1",
        {},
        2,
        "unknown key 'D' in [formulation]",
        "known: C, epsilon, intercept, loss",
    ),
    Case(
        "tune config.toml --formulation vsk",
        {},
        2,
        "unknown formulation 'vsk'",
        "did you mean 'vskl'? (known: l1, lp, mikl, obscure, shared, spicy, uniform, vskl)",
    ),
    Case(
        "tune config.toml --folds 1",
        {},
        2,
        "[tune] folds should be at least 2, repeats at least 1",
        "5 folds and 1 repeat are usual",
    ),
    Case(
        "tune config.toml --rule worst",
        {},
        2,
        "[tune] rule, from the command line, can't be 'worst'",
        "known: best, one-se",
    ),
    Case(
        "tune config.toml -s tune.fold=3",
        {},
        2,
        "unknown key 'fold' in [tune]",
        "did you mean 'folds'? (known: apart, folds, formulations, grid, metric, repeats, rule)",
    ),
    Case(
        "tune config.toml --folds 28",
        {},
        4,
        "28 folds, but only 27 training samples of class '2'",
        "use at most 27 folds",
    ),
    Case(
        "tune store.zarr --folds 28",
        {},
        4,
        "28 folds, but only 27 training samples of class '2'",
        "use at most 27 folds",
    ),
    Case(
        "tune config.toml",
        {"y": (np.arange(120) < 2).astype(int)},
        4,
        "5 folds, but only 1 training sample of class '1'",
        "leave it out, or add samples",
    ),
    Case(
        "tune config.toml --formulation l1",
        {"y": np.linspace(0, 1.5, 120)},
        4,
        "real-valued labels have no classes to tell apart",
        'use formulation.name = "spicy" with loss = "squared" or "epsilon"',
    ),
    Case("tune config.toml -o finished", {}, 8, "finished holds a finished run", "choose another -o or remove it"),
    Case(
        "cluster keys -o data.npz",
        {},
        8,
        "cannot write FOLDER/data.npz: File exists",
        "check the path, or choose another -o",
    ),
]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, a kernel store and data files, to be copied."""
    folder = tmp_path_factory.mktemp("prepared")
    assert DATA.labels is not None
    np.savez(folder / "data.npz", y=DATA.labels.values, **ARRAYS)
    np.savez(folder / "nolabels.npz", **ARRAYS)
    np.savez(folder / "points.npz", X_points=ARRAYS["X_points"])
    (folder / "config.toml").write_text(CONFIG)
    assert main(["train", str(folder / "config.toml"), "-q", "-o", str(folder / "finished")]) == 0
    assert main(["kernels", str(folder / "config.toml"), "-q", "-o", str(folder / "store.zarr")]) == 0
    return folder


def spoil(folder: Path, files: dict[str, Any]) -> None:
    arrays = {}
    for name, content in files.items():
        if isinstance(content, str):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(content)
        else:
            arrays[name] = content
    if arrays:
        np.savez(folder / "data.npz", **{**np.load(folder / "data.npz"), **arrays})


@pytest.mark.parametrize("case", CASES, ids=[f"{case.command} {' '.join(case.files)}".strip() for case in CASES])
def test_wrong_input(
    prepared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    case: Case,
) -> None:
    folder = tmp_path / "here"
    shutil.copytree(prepared, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", "/nobody")
    for name in [name for name in case.files if name.startswith("DMKL_")]:
        monkeypatch.setenv(name, case.files[name])
    spoil(folder, {name: content for name, content in case.files.items() if not name.startswith("DMKL_")})
    before = sorted(folder.rglob("*"))
    assert main(shlex.split(case.command)) == case.code
    said = re.sub(r"takes \d+ MB", "takes N MB", capsys.readouterr().err.replace(str(folder), "FOLDER"))
    assert said == f"error: {case.error}\nhint: {case.hint}\n"
    if case.command not in LATE:
        assert sorted(folder.rglob("*")) == before  # what is refused leaves nothing behind


LATE = {  # refused by a solver, which needs the kernels
    "train config.toml -s formulation.name=vskl -s solve.method=mirrors",
    "train config.toml -s formulation.name=vskl",
}


def test_every_class_of_error_has_an_exit_code_and_a_way_out() -> None:
    classes = DmklError.__subclasses__()
    assert {cls.exit_code for cls in classes} <= set(EXIT_CODES)
    assert all(cls.remedy and "\n" not in cls.remedy for cls in classes)


def test_an_error_of_our_own_is_said_to_be_one(
    prepared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("what nobody\nthought of")

    monkeypatch.setattr("dmkl.model.load_model", fail)
    assert main(["info", str(prepared / "finished")]) == 1
    assert capsys.readouterr().err == (
        "error: internal error: RuntimeError: what nobody thought of\n"
        "hint: please report it with the output of dmkl --debug\n"
    )
    assert main(["--debug", "info", str(prepared / "finished")]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_the_guide_has_every_exit_code() -> None:
    guide = (Path(dmkl.__file__).parent / "docs/guide/running.md").read_text()
    assert not {code: meaning for code, meaning in EXIT_CODES.items() if f"| {code} | {meaning} |" not in guide}


def test_the_table_is_long_enough() -> None:
    assert len(CASES) >= 30
    assert {case.code for case in CASES} >= {2, 4, 5, 6, 7, 8, 9}
