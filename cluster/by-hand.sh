#!/usr/bin/env bash
# A Dask scheduler and its workers on this machine, started with Dask's own commands; Ctrl-C ends them.
#
#   cluster/by-hand.sh [WORKERS] [PORT]        default: 2 workers, port 8786
#   dmkl train CONFIG --cluster tcp://127.0.0.1:8786
#
# On several machines the commands are the same, `dask scheduler` on one and `dask worker ADDRESS` on the others, with the
# TLS flags that `dmkl cluster keys` prints; all machines need dmkl and the folder of the kernel store. Here everything
# listens on loopback, because a scheduler and its workers run any code they are sent. --no-dashboard alone would leave
# the dashboard's port open.
set -euo pipefail
workers=${1:-2}
port=${2:-8786}

processes=()
stop() { kill "${processes[@]}" 2>/dev/null || true; wait; }
trap stop EXIT
trap 'exit 130' INT TERM

dask scheduler --host 127.0.0.1 --port "$port" --no-dashboard --dashboard-address 127.0.0.1:0 &
processes+=($!)
for _ in $(seq "$workers"); do
  dask worker "tcp://127.0.0.1:$port" --host 127.0.0.1 --nthreads 1 --no-dashboard --dashboard-address 127.0.0.1:0 &
  processes+=($!)
done
wait -n  # when one process ends, the trap ends the others
