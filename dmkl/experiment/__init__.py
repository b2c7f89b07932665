"""Runs: from one configuration to kernels, model, scores and report."""

from dmkl.experiment.examples import EXAMPLES
from dmkl.experiment.prepare import build, prepare, project, resolved, stored_config
from dmkl.experiment.reporting import report
from dmkl.experiment.rundir import RunDirectory
from dmkl.experiment.training import Trained, train
from dmkl.experiment.tuning import tune_run

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
