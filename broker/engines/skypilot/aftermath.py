"""A cluster that is gone: its agents' files, the reason for its end, and the stored observation."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from broker.agent.store import split_folder
from broker.core.errors import BrokerError, RetryLater
from broker.core.ports import EngineState, Observation
from broker.engines.detached import Slot
from broker.engines.handles import gone_as_recorded
from broker.engines.skypilot.ends import Ends
from broker.engines.skypilot.evidence import NO_WORD, CloudSays, CloudWord, EndOf, HowGone, WordOf, how_gone
from broker.engines.skypilot.reservations import OUTSIDE
from broker.engines.skypilot.task import cluster_name
from broker.runfolder.runfolder import AttemptFolder, RunFolder

log = logging.getLogger(__name__)
_BEFORE = "before-end.json"
_SEEN = "seen-after-end.json"  # until when the cloud had machines that SkyPilot no longer lists
_ASK_AGAIN = timedelta(minutes=5)  # how long end times and reasons are requested from an unreachable server or cloud
_LOST_AFTER = timedelta(seconds=30)  # clouds report an end within seconds; SkyPilot lost a machine that still runs
UNKNOWN = Observation(EngineState.LOST, evidence="SkyPilot has no record of it")


def run_folder(launch: Mapping[str, Any]) -> tuple[RunFolder, int]:
    job, attempt = split_folder(str(launch["run_folder"]))
    runs_url, _, job_id = job.rpartition("/")
    return RunFolder(runs_url, job_id), attempt


def folder_of(slot: Slot) -> AttemptFolder | None:
    """The attempt's folder, written by its agents; None if this machine does not know it. Raises `BrokerError`."""
    launch = slot.read("launch.json")
    if launch is None:
        return None
    runs, attempt = run_folder(launch)
    return runs.read_state(attempt)


class StillThere(RetryLater):
    """The cloud says that the machine runs, though SkyPilot no longer lists it."""


class CloudWitness:
    """Asks clouds who ended machines, and stores the answers with the attempt."""

    def __init__(self, words: Mapping[str, WordOf], ends: Mapping[str, EndOf]) -> None:
        """``words`` ask a cloud who ended machines, ``ends`` end machines; both by SkyPilot's name of the cloud."""
        self._words, self._ends = words, ends

    def before_end(self, slot: Slot, key: str) -> None:
        """Store the cloud's statement about machines that the broker is about to end.

        Raises nothing: they are ended in any case.
        """
        if slot.read(_BEFORE) is not None:
            return
        try:
            word = self._ask(slot, key)
        except RetryLater as error:
            word = CloudWord(CloudSays.UNKNOWN, str(error))
        if word is not None:
            slot.keep_first(_BEFORE, {"says": word.says.value, "words": word.words})

    def after_end(self, slot: Slot, key: str) -> dict[str, CloudWord]:
        """The cloud's present and stored statements about machines that are gone.

        Raises `RetryLater`, also while the cloud still reports them as running: clouds report with a delay.
        """
        found: dict[str, CloudWord] = {}
        if before := slot.read(_BEFORE):
            found["before"] = CloudWord(CloudSays(before["says"]), "")
            if found["before"].says in (CloudSays.ANNOUNCED, CloudSays.TAKEN, CloudSays.BROKE):
                found["before"] = CloudWord(CloudSays(before["says"]), str(before["words"]))
        now = self._ask(slot, key)
        if now is None:
            return {**found, "now": NO_WORD}
        if now.says in (CloudSays.RUNS, CloudSays.ANNOUNCED):
            raise StillThere(f"its cloud does not know that yet ({now.words})")
        return {**found, "now": now}

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

    def _ask(self, slot: Slot, key: str) -> CloudWord | None:
        """The cloud's statement; None for a cloud that cannot be asked. Raises `RetryLater`."""
        launch = slot.read("launch.json") or {}
        ask = self._words.get(str(launch.get("cloud")))
        if ask is None:
            return None
        try:
            return ask(key, str(launch.get("region")))
        except RetryLater:
            raise
        except BrokerError as error:
            log.warning("who ended the machines of %s is not known: %s", key, error)
            return CloudWord(CloudSays.UNKNOWN, f"its cloud does not say who ended it: {error}")


def vanished(slot: Slot, key: str, ends: Ends, witness: CloudWitness, now: datetime) -> Observation:
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
    how = HowGone(False, False, "taken down by gpubroker")
    if since is None and not cancelled and not outcome.get("failure"):
        return UNKNOWN  # the server may have restarted; it will report a machine that comes up
    asked_for = now - datetime.fromisoformat(at)
    if since is not None or outcome.get("failure"):  # machines of a failed launch may exist unseen
        concluded = _concluded(slot, key, witness, cancelled=cancelled, refused=refused, early=asked_for < _ASK_AGAIN)
        if isinstance(concluded, StillThere):
            _lost(slot, key, witness, now, asked_for)
        if isinstance(concluded, BrokerError):
            return _not_settled(since, concluded)
        how, refused = concluded[0], concluded[1] and slot.read(_SEEN) is None
    if outcome.get("failure") and not cancelled:
        how = HowGone(how.interrupted, False, f"SkyPilot could not launch it: {outcome['failure']}")
    billed = (since, since or at) if refused else _billed(slot, key, ends, since, early=asked_for < _ASK_AGAIN)
    if isinstance(billed, RetryLater):
        return _not_settled(since, billed)
    since, at = billed
    record = {
        "since": since,
        "at": at,
        "interrupted": how.interrupted,
        "own_end": how.own_end,
        "evidence": how.said,
        "no_capacity": refused,
        "outside": (slot.read(OUTSIDE) or {}).get("machines", []),
    }
    return gone_as_recorded(slot.keep_first("gone.json", record))


def _lost(slot: Slot, key: str, witness: CloudWitness, now: datetime, since: timedelta) -> None:
    """Record that the cloud still reports machines that SkyPilot no longer lists, so that they are billed until now.

    ``since``: how long this has been so; after `_LOST_AFTER`, the machines are ended.
    """
    slot.write(_SEEN, {"at": now.isoformat()})
    if since >= _LOST_AFTER:
        witness.end(slot, key)


def _billed(slot: Slot, key: str, ends: Ends, since: str | None, *, early: bool) -> tuple[str | None, str] | RetryLater:
    """The billed time of machines that existed; its start is None if none did. ``early``: see `_concluded`."""
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
    if seen := slot.read(_SEEN):  # the cloud's statement takes precedence over SkyPilot's
        since, at = since or launched_at, max(at, str(seen["at"]))
    return since, at


def _concluded(
    slot: Slot, key: str, witness: CloudWitness, *, cancelled: bool, refused: bool, early: bool
) -> tuple[HowGone, bool] | BrokerError:
    """The outcome, and whether no machine ever existed, from the cloud and the run folder; or the error of a query that
    must be repeated first. ``early``: a missing answer may still come.
    """
    try:
        told = witness.after_end(slot, key)
    except RetryLater as error:
        if early:
            return error
        says = CloudSays.RUNS if isinstance(error, StillThere) else CloudSays.UNKNOWN
        told = {"now": CloudWord(says, str(error))}
    # SkyPilot also reports "no capacity" for a machine that came up and that it could not use.
    refused = refused and told["now"].says is CloudSays.UNKNOWN
    folder = None
    try:
        # The run folder shows whether the job ended first. Unless the broker ended it, wait until it can be read.
        folder = folder_of(slot)
    except BrokerError as error:
        if early or not (cancelled or refused):
            return error
    return how_gone(folder, told, ended_by_us=cancelled), refused


def _not_settled(since: str | None, error: BrokerError) -> Observation:
    """Observed as gone, with a query to be repeated. ``since``: start of billing."""
    state = EngineState.UP if since else EngineState.PENDING
    return Observation(state, datetime.fromisoformat(since) if since else None, evidence=f"gone, and {error}")
