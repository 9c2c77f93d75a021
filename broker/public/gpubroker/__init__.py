"""gpubroker from Python: plan, submit and follow jobs with the use cases of the command line.

::

    from pathlib import Path
    from gpubroker import Client

    with Client() as client:
        job = client.read_job(Path("train.yaml"))
        print(client.plan(job).plan.placements)
        result = client.submit(job).result()
        print(result.state, result.cost)

`Client` opens the store that the settings name, as the operating-system user. `Job` and its parts describe a job;
amounts are `Money` in USD, times are UTC, durations are `timedelta`. Expected errors are `BrokerError` with
``message``, ``where`` and ``hint``. Only the names below are the public interface; everything else may change with any
version.
"""

from __future__ import annotations

from gpubroker._part_check import check_parts

check_parts()

from broker.app.jobs.preview import NoFeasibleCapacity, Preview
from broker.app.jobs.submit import DearerNow
from broker.core.errors import (
    ApprovalNeeded,
    BrokerError,
    InvalidInput,
    MissingExtra,
    NotAllowed,
    RetryLater,
    StoreProblem,
    UnknownName,
    UnreadableJob,
)
from broker.core.events.outcomes import JobState
from broker.core.events.wait_reasons import EndReason, WaitReason
from broker.core.job.jobs import (
    CheckpointPlan,
    Constraints,
    Data,
    Job,
    MachineRequest,
    Model,
    Priority,
    Retry,
    SessionPlan,
    Work,
    Workload,
)
from broker.core.job.placements import Placement, Plan
from broker.core.market.offers import CapacityType, Interconnect, Offer
from broker.core.values.money import Money
from gpubroker.client import Client, JobEvent, JobResult, SubmittedJob
from gpubroker.progress import watch

__all__ = [
    "ApprovalNeeded",
    "BrokerError",
    "CapacityType",
    "CheckpointPlan",
    "Client",
    "Constraints",
    "Data",
    "DearerNow",
    "EndReason",
    "Interconnect",
    "InvalidInput",
    "Job",
    "JobEvent",
    "JobResult",
    "JobState",
    "MachineRequest",
    "MissingExtra",
    "Model",
    "Money",
    "NoFeasibleCapacity",
    "NotAllowed",
    "Offer",
    "Placement",
    "Plan",
    "Preview",
    "Priority",
    "Retry",
    "RetryLater",
    "SessionPlan",
    "StoreProblem",
    "SubmittedJob",
    "UnknownName",
    "UnreadableJob",
    "WaitReason",
    "Work",
    "Workload",
    "watch",
]
