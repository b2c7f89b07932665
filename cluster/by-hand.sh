#!/usr/bin/env bash
# A Dask scheduler and its workers on this machine, started with Dask's own commands; Ctrl-C ends them.
#
#   cluster/by-hand.sh [WORKERS] [PORT]        default: 2 workers, port 8786
#   dmkl train CONFIG --cluster tcp://127.0.0.1:8786
#
# On several machines it is the same two commands, `dask scheduler` on one and `dask worker ADDRESS` on the others, with
# the TLS flags that `dmkl cluster keys` prints; all need dmkl and the folder the kernel store is in. Here everything
# listens on loopback: scheduler and workers run what they are sent, and --no-dashboard alone would leave its port open.
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
wait -n  # whichever ends first takes the others with it
