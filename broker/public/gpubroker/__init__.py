"""gpubroker from Python: plan, submit and follow jobs and function calls.

::

    import gpubroker

    client = gpubroker.Client()  # the store of this machine, or the server of GPUBROKER_SERVER
    job = client.submit("train.yaml")  # or a dict of the same keys, or a Job
    job = client.submit(train, 1e-4, resources="H100:8", max_cost="$40")  # a function and its arguments
    for task in client.map(train, [1e-3, 1e-4], resources="L4"):
        print(task.result())  # what the function returned, or raises what it raised

Amounts are `Money` in USD, times are UTC, durations are `timedelta`. Every error is an `Error` with ``message``,
``where`` and ``hint``, except what a function itself raised. Only the names below are the public interface; everything
else may change with any version.
"""

from __future__ import annotations

from gpubroker._part_check import check_parts

check_parts()

from broker.app.jobs.documents import JobDetails
from broker.app.jobs.preview import NoFeasibleCapacity
from broker.core.errors import (
    ApprovalNeeded,
    InvalidInput,
    MissingExtra,
    NotAllowed,
    RetryLater,
    StoreProblem,
    UnknownName,
    UnreadableJob,
)
from broker.core.errors import BrokerError as Error
from broker.core.events.outcomes import JobState
from broker.core.values.money import Money
from gpubroker.calls import NoResult, RemoteError
from gpubroker.client import Client
from gpubroker.job_input import Job
from gpubroker.progress import watch
from gpubroker.submitted import SubmittedJob, Tasks, TimedOut

__all__ = [
    "ApprovalNeeded",
    "Client",
    "Error",
    "InvalidInput",
    "Job",
    "JobDetails",
    "JobState",
    "MissingExtra",
    "Money",
    "NoFeasibleCapacity",
    "NoResult",
    "NotAllowed",
    "RemoteError",
    "RetryLater",
    "StoreProblem",
    "SubmittedJob",
    "Tasks",
    "TimedOut",
    "UnknownName",
    "UnreadableJob",
    "watch",
]

for _name in __all__:  # errors print as `gpubroker.InvalidInput`, and everything is pickled by the name that is public
    globals()[_name].__module__, globals()[_name].__qualname__ = __name__, _name
