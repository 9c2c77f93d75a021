"""The job file: YAML that reads like a SkyPilot task file, in and out of `broker.core.jobs.Job`."""

from broker.core.jobfile.printing import print_job
from broker.core.jobfile.reading import parse_job

__all__ = ["parse_job", "print_job"]
