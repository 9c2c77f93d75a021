#!/bin/sh
# PrologSlurmctld, for arrays with GPUs (GPUBROKER_ARRAYS=yes of job_submit.lua): before a task begins, the broker holds its
# money. Where it may not begin now, or the broker does not answer, Slurm puts the task back and tries again in some minutes.
launches="${GPUBROKER_LAUNCHES:-http://127.0.0.1:9464/api/v1/launches}"
curl_config="${GPUBROKER_CURL:-/etc/slurm/gpubroker.curl}"
[ -n "$SLURM_ARRAY_TASK_ID" ] || exit 0 # a job by itself was judged when it was submitted
which="${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
# This field alone: names and comments are the user's own, and could say anything.
job="$(squeue --noheader --states=all --jobs="$which" --Format=admin_comment:80)" || exit 1
[ -n "$job" ] || exit 1
launch="$(printf '%s\n' "$job" | sed -n 's/^outside:\(slurm-[0-9a-f]*\) .*/\1/p')"
[ -n "$launch" ] || exit 0 # without GPUs
curl --silent --fail --max-time 10 --retry 3 --config "$curl_config" --request POST \
  "$launches/$launch.$SLURM_ARRAY_TASK_ID/start" >/dev/null || exit 1
