#!/bin/sh
# EpilogSlurmctld: tells the broker that a job which it judged has ended, and how long its machines were there; of a task of
# an array the broker knows itself since when. The same settings as job_submit.lua; the end of a job that nobody reports
# counts as spent after thirty days.
launches="${GPUBROKER_LAUNCHES:-http://127.0.0.1:9464/api/v1/launches}"
curl_config="${GPUBROKER_CURL:-/etc/slurm/gpubroker.curl}"
which="${SLURM_ARRAY_TASK_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}"
# These two fields alone: names and comments are the user's own, and could say anything.
job="$(squeue --noheader --states=all --jobs="${which:-$SLURM_JOB_ID}" --Format=admin_comment:80,TimeUsed:40)" || exit 0
launch="$(printf '%s\n' "$job" | sed -n 's/^outside:\(slurm-[0-9a-f]*\) .*/\1/p')"
[ -n "$launch" ] || exit 0 # not judged as a launch of its own
if [ -n "$which" ]; then
  launch="$launch.$SLURM_ARRAY_TASK_ID"
else
  ran="$(printf '%s\n' "$job" | awk '$2 ~ /^[0-9]+([-:][0-9]+)+$/ {
    parts = split($2, one, /[-:]/)
    print one[parts] + 60 * one[parts - 1] + 3600 * one[parts - 2] + 86400 * one[parts - 3] }')"
fi
curl --silent --max-time 10 --retry 3 --config "$curl_config" --header 'Content-Type: application/json' \
  --data "{\"ran_seconds\": ${ran:-null}}" "$launches/$launch/end" >/dev/null
exit 0
