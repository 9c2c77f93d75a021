"""The cloud's statement about the end of a cluster's machines, and the conclusion from it. Pure.

A node's report is not enough: a job can end its agent and write into its run folder that the machine was taken back.
Such a machine is free at some clouds, and such an end never counts as a failure of the job.
The end times of clusters that an API server no longer lists come from its records: one report per observation.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from broker.core.errors import BrokerError, RetryLater
from broker.core.events.agent_events import CheckpointSaved
from broker.core.events.outcomes import Cause
from broker.engines.detached import Slot
from broker.engines.runfolder.runfolder import AttemptFolder
from broker.engines.skypilot.sdk import Sdk


class CloudVerdict(StrEnum):
    """What a cloud says about a machine.

    ``RUNS``: it exists. ``ANNOUNCED``: it exists, and the cloud will take it back. ``TAKEN``: the cloud took it back.
    ``BROKE``: the cloud ended it because of a fault of the cloud. ``ASKED_FOR``: it was ended from within or on request
    of its account. ``UNKNOWN``: the cloud does not know, or cannot be asked.
    """

    RUNS = "runs"
    ANNOUNCED = "announced"
    TAKEN = "taken"
    BROKE = "broke"
    ASKED_FOR = "asked_for"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CloudStatement:
    """The cloud's statement, with an ``explanation`` for people."""

    verdict: CloudVerdict
    explanation: str = ""


StatementQuery = Callable[[str, str], CloudStatement]
"""Returns the cloud's statement about the machines of a key in a region. Raises `RetryLater` if asking again
may help.
"""

MachineEnder = Callable[[str, str], None]
"""Ends the machines of a key in a region, whatever SkyPilot knows. Raises `BrokerError`."""

NO_STATEMENT = CloudStatement(CloudVerdict.UNKNOWN, "its cloud is not asked who ended it")


@dataclass(frozen=True, slots=True)
class MachinesEnd:
    """``interrupted`` and ``own_end`` as in `Observation`; ``said``: the evidence, for people."""

    interrupted: bool
    own_end: bool
    said: str


def conclude_end(
    folder: AttemptFolder | None, statements: Mapping[str, CloudStatement], *, ended_by_us: bool
) -> MachinesEnd:
    """How the machines ended.

    ``folder``: the files of their agents; None if this machine does not know it. ``statements``: the cloud's statements
    before we ended them (``before``) and now (``now``).

    Only the cloud's statement decides whether time is free. If it does not state that it took the machine, an agent
    that died or that reports an interruption counts as failed, unless it saved a checkpoint and nothing contradicts its
    report: the cloud may not be able to tell, and a job that makes progress is not restarted forever.
    """
    ordered = [statements[moment] for moment in ("before", "now") if moment in statements]
    verdicts = [statement.verdict for statement in ordered]
    was_taken = CloudVerdict.TAKEN in verdicts
    by_cloud = was_taken or CloudVerdict.ANNOUNCED in verdicts or CloudVerdict.BROKE in verdicts
    cloud = "; ".join(statement.explanation for statement in ordered if statement.explanation)
    if folder is None:
        return MachinesEnd(
            was_taken, False, _join("taken down by gpubroker" if ended_by_us else "the cluster is gone", cloud)
        )
    exit_record = folder.exit
    if exit_record is not None:
        reports_preemption = exit_record.cause is Cause.PREEMPTED
        is_own_end = reports_preemption and not by_cloud and not _has_checkpoint(folder)
        return MachinesEnd(
            was_taken, is_own_end, _join(f"the cluster is gone; the agent ended: {exit_record.cause.value}", cloud)
        )
    if ended_by_us:
        is_own_end = bool(folder.claims) and not by_cloud and not _has_checkpoint(folder)
        return MachinesEnd(was_taken, is_own_end, _join("taken down by gpubroker", cloud))
    if not folder.claims:
        text = "the cluster went away before the agent started: setup failed, or the machine was taken"
        return MachinesEnd(was_taken, False, _join(text, cloud))
    is_own_end = not by_cloud and (CloudVerdict.ASKED_FOR in verdicts or not _has_checkpoint(folder))
    return MachinesEnd(was_taken, is_own_end, _join("the cluster is gone, and its agent had not ended", cloud))


def _has_checkpoint(folder: AttemptFolder) -> bool:
    return any(isinstance(entry.body, CheckpointSaved) for entry in folder.journal)


def _join(text: str, cloud: str) -> str:
    return f"{text}; {cloud}" if cloud else text


log = logging.getLogger(__name__)


class ClusterEnds:
    """``missing``: clusters that the server no longer lists. Fetched on first use."""

    def __init__(self, sdk: Sdk, missing: Sequence[Slot]) -> None:
        self._sdk, self._missing = sdk, missing
        self._report: Mapping[str, datetime] | RetryLater | None = None

    def of(self, cluster: str) -> datetime | None:
        """The cluster's end (UTC); None if the server has no record. Raises `RetryLater`: the next observation asks
        again."""
        if self._report is None:
            self._report = self._ask()
        if isinstance(self._report, RetryLater):
            raise self._report
        return self._report.get(cluster)

    def _ask(self) -> Mapping[str, datetime] | RetryLater:
        now = datetime.now(UTC)
        age = max((now - _start_of(slot, now) for slot in self._missing), default=timedelta(0))
        try:
            return self._sdk.ends(max(age, timedelta(0)).days + 2)
        except RetryLater as error:
            return error
        except BrokerError as error:
            log.warning("SkyPilot reports no end times of clusters: %s", error)
            return {}


def _start_of(slot: Slot, now: datetime) -> datetime:
    start = (slot.read("launch.json") or {}).get("at") or (slot.read("up.json") or {}).get("since")
    return datetime.fromisoformat(start) if start else now


KUBERNETES, GCP = 33, 26
"""The longest name of a cluster, in characters, before the hash of SkyPilot's user."""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def name_on_cloud(cluster: str, longest: int) -> str:
    """The name without the hash of SkyPilot's user: shortened to ``longest`` characters, of which the last two are from
    a hash of the whole name.
    """
    name = re.sub(r"[._]", "-", cluster).lower()
    if len(name) <= longest:
        return name
    number, suffix = int(hashlib.md5(cluster.encode(), usedforsecurity=False).hexdigest(), 16), ""
    while number:
        number, digit = divmod(number, 36)
        suffix = _DIGITS[digit] + suffix
    return f"{name[: longest - 3].rstrip('-')}-{suffix[:2]}"
