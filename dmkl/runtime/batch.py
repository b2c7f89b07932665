"""The coordinator as a batch job: it starts its own workers, and goes back into the queue before its walltime."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from dmkl._util.files import make_folder, write_atomically, write_json
from dmkl._util.units import parse_bytes, parse_seconds
from dmkl.errors import ClusterError
from dmkl.runtime.profile import Profile, seconds_of, slurm_time

SCRIPT, JOB, LOG = "coordinator.sh", "job.json", "coordinator.log"

# The command runs beside the shell, which could not hear USR1 otherwise. TERM lets it cancel its workers; whoever was
# interrupted (130) goes on in the queue's next turn, from the checkpoint, and whoever was done is done.
BODY = """\
echo "$(date +%FT%T) job $SLURM_JOB_ID on $(hostname), restart ${{SLURM_RESTART_COUNT:-0}}"
child=
trap 'kill -TERM "$child" 2>/dev/null' TERM
trap 'again=yes; kill -TERM "$child" 2>/dev/null' USR1
{command} &
child=$!
while wait "$child"; status=$?; kill -0 "$child" 2>/dev/null; do :; done
wait "$child" 2>/dev/null
if [ -n "${{again:-}}" ] && [ "$status" -ge 128 ]; then
  if [ "${{SLURM_RESTART_COUNT:-0}}" -ge {requeues} ]; then
    echo "stopped after {requeues} turns in the queue; submit again to go on"
    exit 3
  fi
  echo "$(date +%FT%T) the walltime is near: back into the queue"
  if scontrol requeue "$SLURM_JOB_ID"; then sleep 60; exit; fi  # SLURM ends this script
  echo "scontrol requeue failed; submit again to go on"
fi
exit "$status"
"""


def coordinator_script(profile: Profile, folder: Path, name: str, command: Sequence[str]) -> str:
    """The batch script that runs a command, a pure text."""
    own = profile.submission
    notice = min(parse_seconds(own.notice), seconds_of(own.walltime) / 2)
    header = [
        f"-J dmkl-{re.sub(r'[^A-Za-z0-9._-]', '_', name)}",
        f"-o {shlex.quote(str(folder.absolute() / LOG))}",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:USR1@{notice:.0f}",
        *([f"-p {own.queue}"] if own.queue else []),
        *([f"-A {own.account}"] if own.account else []),
        "-n 1",
        f"--cpus-per-task={own.cores}",
        f"--mem={-(-parse_bytes(own.memory) // (1 << 20))}M",
        f"-t {slurm_time(own.walltime)}",
        *own.job_extra_directives,
    ]
    lines = [
        "#!/usr/bin/env bash",
        *(f"#SBATCH {line}" for line in header),
        f"cd {shlex.quote(str(Path.cwd()))} || exit 1",
    ]
    body = BODY.format(command=shlex.join(command), requeues=own.requeues)
    return "\n".join([*lines, *profile.job_script_prologue, body])


def submit(script: str, folder: Path) -> str:
    """Hand a script to sbatch, and write down what became of it; the job's number."""
    from dmkl.runtime.jobs import command, queued

    if shutil.which("sbatch") is None:
        raise ClusterError("there is no sbatch on this machine", "run where SLURM's commands are")
    make_folder(folder)
    earlier = submitted(folder)
    try:
        if earlier and earlier in queued():
            raise ClusterError(f"the run is in the queue already, as job {earlier}", f"scancel {earlier} would end it")
        path = folder / SCRIPT
        write_atomically(path, script.encode())
        said = command("sbatch", "--parsable", str(path))
    except OSError as error:
        raise ClusterError(
            f"sbatch refused the job: {error}", "mend the cluster profile; see it with --dry-run"
        ) from None
    job = said.strip().partition(";")[0]
    write_json(folder / JOB, {"job": job, "time": time.time(), "user": os.getuid()})
    return job


def submitted(folder: Path) -> str:
    """The job of a run; '' if it was never submitted."""
    import json

    try:
        return str(json.loads((folder / JOB).read_text())["job"])
    except (OSError, ValueError, KeyError):
        return ""
