"""Runs: from one configuration to kernels, model, scores and report."""

from dmkl.run.examples import EXAMPLES
from dmkl.run.prepare import build, prepare, project, resolved, stored_config
from dmkl.run.reporting import report
from dmkl.run.rundir import RunDirectory
from dmkl.run.training import Trained, train
from dmkl.run.tuning import tune_run

__all__ = [
    "EXAMPLES",
    "RunDirectory",
    "Trained",
    "build",
    "prepare",
    "project",
    "report",
    "resolved",
    "stored_config",
    "train",
    "tune_run",
]
