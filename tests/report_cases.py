"""Runs of every shape as a report sees them: made of random numbers, because training 1,000 classes takes minutes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmkl.config import parse_config
from dmkl.data import Labels, View
from dmkl.kernels.bank import Bank, BankKernel
from dmkl.kernels.functions.standard import Linear
from dmkl.model import Model, Predictions
from dmkl.model.predictions import Explanations, instructive_samples
from dmkl.report import Contents
from dmkl.runtime.timeline import Timeline

HOSTILE = "<script>alert(1)</script> & \"quoted\" 'so' </style>"


def a_run(
    task: str = "multiclass",
    m: int = 5,
    s: int = 12,
    formulation: str = "vskl",
    *,
    per_kernel: bool = False,
    shared: bool = False,
    word: str = "",
    workers: int = 4,
) -> Contents:
    """A finished run with m outputs and s kernels in s / 4 groups; `word` is part of every name in it."""
    rng = np.random.default_rng(m + s)
    classes = {"regression": (), "binary": (f"no {word}", f"yes {word}")}.get(task)
    classes = tuple(f"class {k} {word}".strip() for k in range(m)) if classes is None else classes
    m = 1 if task in ("binary", "regression") else m
    names = [(f"view {a // 4} {word}/linear{a}", f"view {a // 4} {word}") for a in range(s)]
    bank = Bank(tuple(BankKernel(name, "x", group, Linear()) for name, group in names), 5000)
    weights = rng.gamma(0.3, size=(m, s)) * (rng.random((m, s)) < 0.4)
    support, own = 60, s if per_kernel else 1
    objective = rng.uniform(10, 20, 1 if shared else m)
    gap = rng.uniform(1e-6, 1e-3, len(objective))
    model = Model(
        bank=bank,
        views={"x": View("x", "features", rng.normal(size=(support, 3)))},
        samples=np.arange(support),
        weights=np.tile(weights[0], (m, 1)) if shared else weights,
        scales=np.ones(s),
        coef=rng.normal(size=(support, m * own)) * (rng.random((support, m * own)) < 0.5),
        shift=np.zeros(m * own),
        intercept=np.zeros(m),
        task=task,
        classes=classes,
        about={
            "formulation": f"{formulation} C=10",
            "gap": gap.tolist(),
            "objective": objective.tolist(),
            "dual": (objective * (1 - gap)).tolist(),
            "widths": {"x": 3},
        },
        per_kernel=per_kernel,
    )
    kept = held_out(model, rng)
    config = {
        "data": {"example": "digits"},
        "kernels": [{"kernel": "linear"}],
        "formulation": {"name": formulation},
    }
    return Contents(
        config=parse_config(config).to_dict(),
        name=f"runs/{word or 'a'}",
        model=model,
        summary=facts(model, kept, f"{word}/best"),
        manifest={
            "command": ["dmkl", "train", word],
            "started": "2026",
            "host": "here",
            "python": "3",
            "versions": {"dmkl": "1"},
            "data": "abc",
            "seed": 0,
        },
        rounds=[a_round(number) for number in range(1, 9)],
        predictions=kept,
        timeline=a_timeline(workers, word),
    )


def held_out(model: Model, rng: np.random.Generator) -> Predictions:
    n, m = 4 * len(model.outputs) + 40, len(model.outputs)
    scores = rng.normal(size=(n, m))
    if model.task == "regression":
        truth: Any = scores[:, 0] + 0.3 * rng.normal(size=n)
    elif model.task == "multilabel":
        truth = (scores + rng.normal(size=(n, m)) > 0.8).astype(np.uint8)
    elif model.task == "binary":
        truth = (scores[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(np.int64)
    else:
        truth = rng.integers(0, m, n)
        scores[np.arange(n), truth] += 2.5
    labels = Labels(model.task, truth, model.classes)
    which = np.array(instructive_samples(model, scores, labels))
    added = rng.normal(size=(len(which), len(model.bank)))
    winners = tuple(model.outputs[k] for k in scores[which].argmax(axis=1))
    return Predictions(
        scores, labels, 3 * np.arange(n), Explanations(which, winners, added, rng.normal(size=len(which)))
    )


def facts(model: Model, kept: Predictions, best: str) -> dict[str, Any]:
    from dmkl.run.report import score_record

    found = score_record(model, kept)
    baselines = {
        "average": {"kernel": "", "metrics": found["metrics"]},
        "best_single": {"kernel": best, "metrics": found["metrics"]},
    }
    train = {"passes": 40, "rounds": 8, "svm_calls": 900, "peak_bytes": 2e9, "seconds": 61.5}
    store = {"kernels": len(model.bank), "n": 5000, "computed": False, "bytes": 1e9, "store": best, "seconds": 12.0}
    return {"kernels": store, "train": train, "score": {**found, **baselines, "seconds": 0.7}}


def a_round(number: int) -> dict[str, Any]:
    gap = 10.0 ** (1 - 0.5 * number)
    counts = {"round": number, "passes": 5 * number, "svm_calls": 100 * number, "finished": number, "classes": 9}
    known = {"gap": gap, "dual": 100 * (1 - gap)} if number > 1 else {"gap": None, "dual": None}
    return {**counts, "kernels": 7, "objective": 100 * (1 + gap), "seconds": 0.4 * number, **known}


def a_timeline(workers: int, word: str) -> dict[str, Any]:
    rng = np.random.default_rng(workers)
    timeline = Timeline()
    for worker in range(workers):
        for task in range(30):
            start = 1e9 + task + 0.2 * rng.random()
            timeline.add(f"10.0.0.{worker}:80{worker} {word}", f"part_{task % 9}", start, start + 0.8 * rng.random())
    return timeline.to_dict()


def unfinished() -> Contents:
    """A run that has done two rounds and has no model yet."""
    whole = a_run()
    return Contents(config=whole.config, name="runs/young", finished=False, rounds=[a_round(1), a_round(2)])


CASES = {
    "multiclass": lambda: a_run(),
    "binary": lambda: a_run("binary", formulation="l1"),
    "multilabel, shared": lambda: a_run("multilabel", 30, 15, "shared", shared=True),
    "regression": lambda: a_run("regression", 1, 40, "spicy"),
    "mikl": lambda: a_run("multiclass", 3, 8, "mikl", per_kernel=True),
    "obscure": lambda: a_run("multiclass", 20, 12, "obscure", shared=True),
    "uniform, one kernel": lambda: a_run("multiclass", 3, 1, "uniform"),
    "257 classes": lambda: a_run("multiclass", 257, 20, workers=80),
    "1,000 classes, 5,000 kernels": lambda: a_run("multiclass", 1000, 5000, "lp"),
    "5,000 kernels": lambda: a_run("binary", 2, 5000, "spicy"),
    "hostile names": lambda: a_run("multiclass", 30, 12, word=HOSTILE),
    "hostile names, few": lambda: a_run("multiclass", 4, 5, "mikl", per_kernel=True, word=HOSTILE),
    "unfinished": unfinished,
}
