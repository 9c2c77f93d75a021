"""The secrets of a job in the environment of this process: the submitter's, or that of who launches it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from broker.core.job.jobs import Job


def missing_secrets(job: Job) -> Sequence[str]:
    """The job's secrets that are not in this process's environment, and that it cannot do without."""
    return [name for name in job.secrets if name not in os.environ and name not in job.optional_secrets]
