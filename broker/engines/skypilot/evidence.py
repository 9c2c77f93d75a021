"""The cloud's statement about the end of a cluster's machines, and the conclusion from it. Pure.

A node's report is not enough: a job can end its agent and write into its run folder that the machine was taken back.
Such a machine is free at some clouds, and such an end never counts as a failure of the job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from broker.core.events.agent_events import CheckpointSaved
from broker.core.events.outcomes import Cause
from broker.runfolder.runfolder import AttemptFolder


class CloudSays(StrEnum):
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
class CloudWord:
    """The cloud's statement, with an explanation for people."""

    says: CloudSays
    words: str = ""


WordOf = Callable[[str, str], CloudWord]
"""Returns the cloud's statement about the machines of a key in a region. Raises `RetryLater` if asking again
may help.
"""

EndOf = Callable[[str, str], None]
"""Ends the machines of a key in a region, whatever SkyPilot knows. Raises `BrokerError`."""

NO_WORD = CloudWord(CloudSays.UNKNOWN, "its cloud is not asked who ended it")


@dataclass(frozen=True, slots=True)
class HowGone:
    """``interrupted`` and ``own_end`` as in `Observation`; ``said``: the evidence, for people."""

    interrupted: bool
    own_end: bool
    said: str


def how_gone(folder: AttemptFolder | None, told: Mapping[str, CloudWord], *, ended_by_us: bool) -> HowGone:
    """How the machines ended.

    ``folder``: the files of their agents; None if this machine does not know it. ``told``: the cloud's statements
    before we ended them (``before``) and now (``now``).

    Only the cloud's statement decides whether time is free. If it does not state that it took the machine, an agent
    that died or that reports an interruption counts as failed, unless it saved a checkpoint and nothing contradicts its
    report: the cloud may not be able to tell, and a job that makes progress is not restarted forever.
    """
    words = [told[when] for when in ("before", "now") if when in told]
    all_said = [word.says for word in words]
    taken = CloudSays.TAKEN in all_said
    by_cloud = taken or CloudSays.ANNOUNCED in all_said or CloudSays.BROKE in all_said
    cloud = "; ".join(word.words for word in words if word.words)
    if folder is None:
        return HowGone(
            taken, False, _joined("taken down by gpubroker" if ended_by_us else "the cluster is gone", cloud)
        )
    last = folder.exit
    if last is not None:
        calls_it_taken = last.cause is Cause.PREEMPTED
        own = calls_it_taken and not by_cloud and not _kept(folder)
        return HowGone(taken, own, _joined(f"the cluster is gone; the agent ended: {last.cause.value}", cloud))
    if ended_by_us:
        own = bool(folder.claims) and not by_cloud and not _kept(folder)
        return HowGone(taken, own, _joined("taken down by gpubroker", cloud))
    if not folder.claims:
        before = "the cluster went away before the agent started: setup failed, or the machine was taken"
        return HowGone(taken, False, _joined(before, cloud))
    own = not by_cloud and (CloudSays.ASKED_FOR in all_said or not _kept(folder))
    return HowGone(taken, own, _joined("the cluster is gone, and its agent had not ended", cloud))


def _kept(folder: AttemptFolder) -> bool:
    return any(isinstance(entry.body, CheckpointSaved) for entry in folder.journal)


def _joined(said: str, cloud: str) -> str:
    return f"{said}; {cloud}" if cloud else said
