"""Runs: from one configuration to kernels, model, scores and report.

`context` holds what one run shares, `directory` is where it is written and names the keys of its JSON files. `prepare`
reads what a command is given and makes the kernels, `train` makes the model. The other modules do the work of the
command of their name.
"""

from dmkl.run.context import RunContext, StageListener, interruptible, open_run
from dmkl.run.directory import RunDirectory
from dmkl.run.prepare import (
    EXAMPLES,
    Experiment,
    build,
    prepare_data,
    project,
    read_experiment,
    resolved,
    stored_config,
)
from dmkl.run.report import write_run_report
from dmkl.run.status import run_status
from dmkl.run.train import RunResult, train_run, tune_run

__all__ = [
    "EXAMPLES",
    "Experiment",
    "RunContext",
    "RunDirectory",
    "RunResult",
    "StageListener",
    "build",
    "interruptible",
    "open_run",
    "prepare_data",
    "project",
    "read_experiment",
    "resolved",
    "run_status",
    "stored_config",
    "train_run",
    "tune_run",
    "write_run_report",
]
