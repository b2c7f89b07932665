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

SCRIPT, JOB, LOG, TURNS = "coordinator.sh", "job.json", "coordinator.log", "turns"

# The output goes to the log line by line: some schedulers copy it only when the job ends, over the earlier one.
BEGIN = """\
exec >>{log} 2>&1
turn=$(cat {turns} 2>/dev/null || echo 0)
echo "$(date +%FT%T) job {number} on $(hostname), restart $turn"
printf '{{"job": "%s", "time": %s, "user": %s}}\\n' "{number}" "$(date +%s)" "$(id -u)" >{job}
"""

# In a process group of its own, so that the sleep ends with the script.
TIMER = """\
set -m
{{ sleep {seconds:.0f}; kill -USR1 $$; }} &
timer=$!
set +m
trap 'kill -- "-$timer" 2>/dev/null' EXIT
"""

# The command runs in the background, because the shell handles signals only between commands. On TERM it cancels its
# workers and ends: with 130 or more if it was interrupted, then it continues from its checkpoint after requeueing.
BODY = """\
child=
trap 'kill -TERM "$child" 2>/dev/null' TERM
trap 'again=yes; kill -TERM "$child" 2>/dev/null' USR1
{command} &
child=$!
{timer}\
while wait "$child"; status=$?; kill -0 "$child" 2>/dev/null; do :; done
wait "$child" 2>/dev/null
if [ -n "${{again:-}}" ] && [ "$status" -ge 128 ]; then
  if [ "$turn" -ge {requeues} ]; then
    echo "stopped after $turn turns in the queue; submit the run again to continue it"
    exit 3
  fi
  echo "$(date +%FT%T) the walltime is near: back into the queue"
  echo $((turn + 1)) >{turns}
  if {requeue}; then {patience}exit; fi
  echo "requeueing failed; submit the run again to continue it"
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

    Raises
    ------
    ConfigError
        If the scheduler cannot run a coordinator.
    """
    own, folder = profile.submission, folder.absolute()
    walltime = seconds_of(own.walltime)
    notice = min(parse_seconds(own.notice), walltime / 2)
    job = f"dmkl-{re.sub(r'[^A-Za-z0-9._-]', '_', name)}"
    asked = scheduler.coordinator_directives(own, job, folder / LOG, notice)
    lines = [f"{scheduler.directive} {line}" for line in asked]
    log, turns, job_file, script = (shlex.quote(str(folder / part)) for part in (LOG, TURNS, JOB, SCRIPT))
    again = f"{shlex.join(scheduler.submit)} {'<' if scheduler.reads_stdin else ''}{script}"
    body = BODY.format(
        timer="" if scheduler.sends_notice else TIMER.format(seconds=walltime - notice),
        turns=turns,
        requeue=scheduler.requeue or again,
        patience="sleep 60; " if scheduler.requeue else "",  # until the scheduler ends the script
        requeues=own.requeues,
        command=shlex.join(command),
    )
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            *filter(profile.allows, lines),
            *(f"{scheduler.directive} {line}" for line in own.job_extra_directives),
            BEGIN.format(log=log, turns=turns, job=job_file, number=scheduler.job_number)
            + f"cd {shlex.quote(str(Path.cwd()))} || exit 1",
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
        path.chmod(0o700)  # some schedulers run the file itself
        (folder / TURNS).unlink(missing_ok=True)
        job = scheduler.submit_script(path)
    except OSError as error:
        raise ClusterError(
            f"{scheduler.submit[0]} refused the job: {error}",
            "correct the cluster profile; dmkl submit --dry-run prints the job script",
        ) from None
    write_json(folder / JOB, {"job": job, "time": time.time(), "user": os.getuid()})
    return job
