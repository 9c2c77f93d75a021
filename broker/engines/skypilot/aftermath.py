"""A cluster that is gone: its agents' files, the reason for its end, and the stored observation."""

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta

from broker.core.errors import BrokerError, RetryLater
from broker.core.ports import EngineState, Observation
from broker.engines.detached import Slot
from broker.engines.handles import recorded_end
from broker.engines.runfolder.runfolder import AttemptFolder, RunFolder
from broker.engines.skypilot.evidence import (
    NO_STATEMENT,
    CloudStatement,
    CloudVerdict,
    ClusterEnds,
    MachineEnder,
    MachinesEnd,
    StatementQuery,
    conclude_end,
)
from broker.engines.skypilot.reservations import OUTSIDE
from broker.engines.skypilot.task import cluster_name

log = logging.getLogger(__name__)
_BEFORE = "before-end.json"
_SEEN = "seen-after-end.json"  # until when the cloud had machines that SkyPilot no longer lists
_ASK_AGAIN = timedelta(minutes=5)  # how long end times and reasons are requested from an unreachable server or cloud
_LOST_AFTER = timedelta(seconds=30)  # clouds report an end within seconds; SkyPilot lost a machine that still runs
UNKNOWN = Observation(EngineState.LOST, evidence="SkyPilot has no record of it")


def folder_of(slot: Slot) -> AttemptFolder | None:
    """The attempt's folder, written by its agents; None if this machine does not know it. Raises `BrokerError`."""
    launch = slot.read("launch.json")
    if launch is None:
        return None
    runs, attempt = RunFolder.of_attempt(str(launch["run_folder"]))
    return runs.read_attempt(attempt)


class StillThere(RetryLater):
    """The cloud says that the machine runs, though SkyPilot no longer lists it."""


class CloudWitness:
    """Asks clouds who ended machines, and stores the answers with the attempt."""

    def __init__(self, query_by_cloud: Mapping[str, StatementQuery], ends: Mapping[str, MachineEnder]) -> None:
        """``query_by_cloud``: who ended machines; ``ends`` end machines; both by SkyPilot's name of the cloud."""
        self._query_by_cloud, self._ends = query_by_cloud, ends

    def before_end(self, slot: Slot, key: str) -> None:
        """Store the cloud's statement about machines that the broker is about to end.

        Raises nothing: they are ended in any case.
        """
        if slot.read(_BEFORE) is not None:
            return
        try:
            statement = self._ask(slot, key)
        except RetryLater as error:
            statement = CloudStatement(CloudVerdict.UNKNOWN, str(error))
        if statement is not None:
            slot.keep_first(_BEFORE, {"says": statement.verdict.value, "words": statement.explanation})

    def after_end(self, slot: Slot, key: str) -> dict[str, CloudStatement]:
        """The cloud's present and stored statements about machines that are gone.

        Raises `RetryLater`, also while the cloud still reports them as running: clouds report with a delay.
        """
        statements: dict[str, CloudStatement] = {}
        if stored := slot.read(_BEFORE):
            verdict = CloudVerdict(stored["says"])
            explains = verdict in (CloudVerdict.ANNOUNCED, CloudVerdict.TAKEN, CloudVerdict.BROKE)
            statements["before"] = CloudStatement(verdict, str(stored["words"]) if explains else "")
        current = self._ask(slot, key)
        if current is None:
            return {**statements, "now": NO_STATEMENT}
        if current.verdict in (CloudVerdict.RUNS, CloudVerdict.ANNOUNCED):
            raise StillThere(f"its cloud does not know that yet ({current.explanation})")
        return {**statements, "now": current}

    def end(self, slot: Slot, key: str) -> None:
        """End machines that SkyPilot no longer lists: if the tags of a launch's machines come late, SkyPilot abandons
        the launch and finds nothing to end. Raises nothing: the next observation repeats the call.
        """
        launch = slot.read("launch.json") or {}
        end = self._ends.get(str(launch.get("cloud")))
        if end is None:
            return
        try:
            end(key, str(launch.get("region")))
        except BrokerError as error:
            log.warning("the machines of %s, which SkyPilot lost, cannot be ended: %s", key, error)
        else:
            log.warning("the machines of %s, which SkyPilot lost, are being ended", key)

    def _ask(self, slot: Slot, key: str) -> CloudStatement | None:
        """The cloud's statement; None for a cloud that cannot be asked. Raises `RetryLater`."""
        launch = slot.read("launch.json") or {}
        ask = self._query_by_cloud.get(str(launch.get("cloud")))
        if ask is None:
            return None
        try:
            return ask(key, str(launch.get("region")))
        except RetryLater:
            raise
        except BrokerError as error:
            log.warning("who ended the machines of %s is not known: %s", key, error)
            return CloudStatement(CloudVerdict.UNKNOWN, f"its cloud does not say who ended it: {error}")


def observe_vanished(slot: Slot, key: str, ends: ClusterEnds, witness: CloudWitness, now: datetime) -> Observation:
    """The observation of a cluster that the server no longer lists: its machines are gone, and earlier observations,
    the agent and the cloud give the reason. Billing ends when the server noticed it, else at ``now`` (UTC) of the first
    observation without it; the agent's end proves nothing.
    """
    at = slot.keep_first("vanished.json", {"at": now.isoformat()})["at"]
    launch = slot.read("launch.json") or {}
    launched_at = launch.get("at", at)
    outcome = slot.read(OUTSIDE) or slot.read("launched.json") or {}
    cancelled = slot.read("cancelled.json") is not None
    refused = bool(outcome.get("refused"))
    up = slot.read("up.json")
    since = up["since"] if up else None
    if since is None and outcome.get("status") == "succeeded":
        since = launched_at
    ending = MachinesEnd(False, False, "taken down by gpubroker")
    if since is None and not cancelled and not outcome.get("failure"):
        return UNKNOWN  # the server may have restarted; it will report a machine that comes up
    waited = now - datetime.fromisoformat(at)
    if since is not None or outcome.get("failure"):  # machines of a failed launch may exist unseen
        conclusion = _conclude(slot, key, witness, cancelled=cancelled, refused=refused, early=waited < _ASK_AGAIN)
        if isinstance(conclusion, StillThere):
            _record_survivors(slot, key, witness, now, waited)
        if isinstance(conclusion, BrokerError):
            return _pending_observation(since, conclusion)
        ending, refused = conclusion[0], conclusion[1] and slot.read(_SEEN) is None
    if outcome.get("failure") and not cancelled:
        ending = MachinesEnd(ending.interrupted, False, f"SkyPilot could not launch it: {outcome['failure']}")
    billing = (since, since or at) if refused else _billed_time(slot, key, ends, since, early=waited < _ASK_AGAIN)
    if isinstance(billing, RetryLater):
        return _pending_observation(since, billing)
    since, at = billing
    record = {
        "since": since,
        "at": at,
        "interrupted": ending.interrupted,
        "own_end": ending.own_end,
        "evidence": ending.said,
        "no_capacity": refused,
        "outside": (slot.read(OUTSIDE) or {}).get("machines", []),
    }
    return recorded_end(slot.keep_first("gone.json", record))


def _record_survivors(slot: Slot, key: str, witness: CloudWitness, now: datetime, since: timedelta) -> None:
    """Record that the cloud still reports machines that SkyPilot no longer lists, so that they are billed until now.

    ``since``: how long this has been so; after `_LOST_AFTER`, the machines are ended.
    """
    slot.write(_SEEN, {"at": now.isoformat()})
    if since >= _LOST_AFTER:
        witness.end(slot, key)


def _billed_time(
    slot: Slot, key: str, ends: ClusterEnds, since: str | None, *, early: bool
) -> tuple[str | None, str] | RetryLater:
    """The billed time of machines that existed; its start is None if none did. ``early``: see `_conclude`."""
    launch, outcome = slot.read("launch.json") or {}, slot.read("launched.json") or {}
    at = str((slot.read("vanished.json") or {})["at"])
    launched_at = str(launch.get("at", at))
    try:
        ended = ends.of(cluster_name(key))
    except RetryLater as error:
        if early:
            return error
        ended = None
    existed = ended is not None or bool(outcome.get("refused"))
    if existed and since is None and not launch.get("queued"):
        since = launched_at  # it existed only between two queries
    if since is not None:
        at = max(min(at, ended.isoformat() if ended else at), since)
    if sighting := slot.read(_SEEN):  # the cloud's statement takes precedence over SkyPilot's
        since, at = since or launched_at, max(at, str(sighting["at"]))
    return since, at


def _conclude(
    slot: Slot, key: str, witness: CloudWitness, *, cancelled: bool, refused: bool, early: bool
) -> tuple[MachinesEnd, bool] | BrokerError:
    """The outcome, and whether no machine ever existed, from the cloud and the run folder; or the error of a query that
    must be repeated first. ``early``: a missing answer may still come.
    """
    try:
        statements = witness.after_end(slot, key)
    except RetryLater as error:
        if early:
            return error
        says = CloudVerdict.RUNS if isinstance(error, StillThere) else CloudVerdict.UNKNOWN
        statements = {"now": CloudStatement(says, str(error))}
    # SkyPilot also reports "no capacity" for a machine that came up and that it could not use.
    refused = refused and statements["now"].verdict is CloudVerdict.UNKNOWN
    folder = None
    try:
        # The run folder shows whether the job ended first. Unless the broker ended it, wait until it can be read.
        folder = folder_of(slot)
    except BrokerError as error:
        if early or not (cancelled or refused):
            return error
    return conclude_end(folder, statements, ended_by_us=cancelled), refused


def _pending_observation(since: str | None, error: BrokerError) -> Observation:
    """Observed as gone, with a query to be repeated. ``since``: start of billing."""
    state = EngineState.UP if since else EngineState.PENDING
    return Observation(state, datetime.fromisoformat(since) if since else None, evidence=f"gone, and {error}")
