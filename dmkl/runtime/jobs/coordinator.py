"""The coordinator as a batch job: it starts its own worker jobs, and goes back into the queue before its walltime."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from dmkl._util.files import make_folder, read_json_if_any, write_atomically, write_json
from dmkl._util.units import parse_seconds
from dmkl.errors import ClusterError
from dmkl.runtime.jobs import Scheduler
from dmkl.runtime.jobs.profile import Profile, seconds_of

SCRIPT, JOB, LOG = "coordinator.sh", "job.json", "coordinator.log"

# The command runs in the background, because the shell handles signals only between commands. On TERM it cancels its
# workers and ends: with 130 or more if it was interrupted, then it continues from its checkpoint after requeueing.
BODY = """\
echo "$(date +%FT%T) job {number} on $(hostname), restart {restarts}"
child=
trap 'kill -TERM "$child" 2>/dev/null' TERM
trap 'again=yes; kill -TERM "$child" 2>/dev/null' USR1
{command} &
child=$!
while wait "$child"; status=$?; kill -0 "$child" 2>/dev/null; do :; done
wait "$child" 2>/dev/null
if [ -n "${{again:-}}" ] && [ "$status" -ge 128 ]; then
  if [ "{restarts}" -ge {requeues} ]; then
    echo "stopped after {requeues} turns in the queue; submit the run again to continue it"
    exit 3
  fi
  echo "$(date +%FT%T) the walltime is near: back into the queue"
  if {requeue} "{number}"; then sleep 60; exit; fi  # the scheduler ends this script
  echo "{requeue} failed; submit the run again to continue it"
fi
exit "$status"
"""


def coordinator_script(scheduler: Scheduler, profile: Profile, folder: Path, name: str, command: Sequence[str]) -> str:
    """The job script that runs a command, as text; nothing is started or written.

    Parameters
    ----------
    scheduler, profile
        The batch scheduler, and the profile whose `[coordinator]` table says what the job asks for.
    folder
        The folder of the run's jobs, where the log goes.
    name
        A short name for the job.
    command
        The words of the command.
    """
    own = profile.submission
    notice = min(parse_seconds(own.notice), seconds_of(own.walltime) / 2)
    job = f"dmkl-{re.sub(r'[^A-Za-z0-9._-]', '_', name)}"
    asked = scheduler.coordinator_directives(own, job, folder.absolute() / LOG, notice)
    body = BODY.format(
        number=scheduler.job_number,
        restarts=scheduler.restarts,
        requeue=shlex.join(scheduler.requeue),
        requeues=own.requeues,
        command=shlex.join(command),
    )
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            *(f"{scheduler.directive} {line}" for line in [*asked, *own.job_extra_directives]),
            f"cd {shlex.quote(str(Path.cwd()))} || exit 1",
            *profile.job_script_prologue,
            body,
        ]
    )


def submit_script(scheduler: Scheduler, script: str, folder: Path) -> str:
    """Submit a job script, and write its number into the folder; the number.

    Raises
    ------
    ClusterError
        If the scheduler's commands are missing or fail, or an earlier job of this folder is still in the queue.
    """
    scheduler.require_commands()
    make_folder(folder)
    earlier = str(read_json_if_any(folder / JOB).get("job", ""))
    try:
        if earlier and earlier in scheduler.jobs():
            cancel = shlex.join([*scheduler.cancel, earlier])
            raise ClusterError(f"the run is in the queue already, as job {earlier}", f"{cancel} would end it")
        path = folder / SCRIPT
        write_atomically(path, script.encode())
        job = scheduler.submit_script(path)
    except OSError as error:
        raise ClusterError(
            f"{scheduler.submit[0]} refused the job: {error}",
            "correct the cluster profile; dmkl submit --dry-run prints the job script",
        ) from None
    write_json(folder / JOB, {"job": job, "time": time.time(), "user": os.getuid()})
    return job
