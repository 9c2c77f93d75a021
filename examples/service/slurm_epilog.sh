#!/bin/sh
# EpilogSlurmctld: tells the broker that a job which it judged has ended, and how long its machines were there.
# The same settings as job_submit.lua; the end of a job that nobody reports counts as spent after thirty days.
launches="${GPUBROKER_LAUNCHES:-http://127.0.0.1:9464/api/v1/launches}"
curl_config="${GPUBROKER_CURL:-/etc/slurm/gpubroker.curl}"
job="$(scontrol --oneliner show job "$SLURM_JOB_ID")" || exit 0
launch="$(printf '%s' "$job" | sed -n 's/.*AdminComment=outside:\(slurm-[0-9a-f]*\).*/\1/p')"
[ -n "$launch" ] || exit 0 # not judged as a launch of its own
ran="$(printf '%s' "$job" | sed -n 's/.* RunTime=\(\([0-9]*\)-\)\{0,1\}\([0-9]*\):\([0-9]*\):\([0-9]*\) .*/\2 \3 \4 \5/p' |
  awk '{ if (NF == 3) print $1 * 3600 + $2 * 60 + $3; else print $1 * 86400 + $2 * 3600 + $3 * 60 + $4 }')"
curl --silent --max-time 10 --retry 3 --config "$curl_config" --header 'Content-Type: application/json' \
  --data "{\"ran_seconds\": ${ran:-null}}" "$launches/$launch/end" >/dev/null
exit 0
