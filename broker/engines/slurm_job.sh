#!/bin/sh
# The batch job of one attempt: the gpubroker agent, given as arguments, once on every node of the job.
# Ends when they have ended, hands SIGTERM on to them, and leaves nothing on the node's own disk.
scratch="${SLURM_TMPDIR:-${TMPDIR:-/tmp}}/gpubroker-$(id -u)-$SLURM_JOB_ID"
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
  # srun starts this script on each node; a rank that fails must not take the others' last words along.
  if [ -z "$GPUBROKER_ON_NODE" ]; then
    GPUBROKER_ON_NODE=1 srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --kill-on-bad-exit=0 \
      --export=ALL sh "$GPUBROKER_SCRIPT" "$@" &
    child=$!
    trap ':' TERM # the agents get Slurm's signal themselves; srun would cut them off
    while :; do wait "$child"; status=$?; kill -0 "$child" 2>/dev/null || break; done
    exit "$status"
  fi
  scratch="$scratch-$SLURM_PROCID"
fi
rank="${GPUBROKER_ON_NODE:+$SLURM_PROCID}"
unset GPUBROKER_ON_NODE GPUBROKER_SCRIPT
# A folder of this name may be another user's, or of a job with the same number: of another cluster on this node, or of
# one that died here. What lies in it would run as this job.
mkdir -m 700 "$scratch" 2>/dev/null || scratch="$(mktemp -d "$scratch-XXXXXX")" || exit 75
"$@" --rank "${rank:-0}" --gang "$SLURM_JOB_ID" --scratch "$scratch" &
child=$!
trap 'kill -TERM "$child" 2>/dev/null' TERM
while :; do wait "$child"; status=$?; kill -0 "$child" 2>/dev/null || break; done
# Where Slurm tracks no processes, what left the session of a killed agent would run on beside the next attempt.
for attempt in 1 2 3 4 5; do
  left="$(grep -lzxF "GPUBROKER_CHECKPOINT_DIR=$scratch/checkpoints" /proc/[0-9]*/environ 2>/dev/null)"
  [ -n "$left" ] || break
  for process in $left; do process="${process#/proc/}" && kill -KILL "${process%/environ}" 2>/dev/null; done
  sleep 1
done
rm -rf "$scratch"
exit "$status"
