"""The job file: YAML that reads like a SkyPilot task file, in and out of `broker.core.job.jobs.Job`."""

from broker.core.job.file.printing import print_job
from broker.core.job.file.reading import parse_job, parse_jobs

__all__ = ["parse_job", "parse_jobs", "print_job"]
