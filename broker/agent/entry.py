"""The start of an agent: read the spec, check for a newer attempt, claim; retries while the store is unreachable."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from broker.agent import claims, signatures
from broker.agent.claims import Claim
from broker.agent.formats import ATTEMPTS, Lease, Spec, attempt_path
from broker.agent.store import ObjectFolder, StoreTrouble

log = logging.getLogger("gpubroker-agent")
_Result = TypeVar("_Result")


class NewerAttempt(Exception):
    """A newer attempt of the job exists: write nothing any more."""


def read_spec(store: ObjectFolder, attempt: int, key: str | None = None) -> Spec:
    """The spec.

    ``key``: with which the broker signs this attempt's documents; None: they are not signed. Raises StoreTrouble, also
    for a spec that is missing, unreadable or not signed, as it may still be written.
    """
    try:
        document = store.read_json(attempt_path(attempt, "spec.json"))
        if document is None:
            raise StoreTrouble("there is no spec.json in the run folder")
        signatures.check("spec.json", document, key)
        return Spec.from_json(document)
    except ValueError as error:
        raise StoreTrouble(str(error)) from error


def read_lease(store: ObjectFolder, attempt: int, key: str | None = None) -> Lease:
    """The lease.

    ``key``: as for `read_spec`. Raises StoreTrouble, also for a lease that is missing, unreadable or not signed:
    without a lease the attempt must not begin.
    """
    try:
        stored = store.read_dated(attempt_path(attempt, "lease.json"))
        if stored is None:
            raise StoreTrouble("there is no lease.json in the run folder")
        document, stored_at = stored
        signatures.check("lease.json", document, key)
        return replace(Lease.from_json(document), stored_at=stored_at)
    except ValueError as error:
        raise StoreTrouble(f"the lease cannot be read: {error}") from error


def claim(store: ObjectFolder, attempt: int, own: Claim) -> Claim | None:
    """Claim a rank of the attempt: None on success, else the claim of another process. Ranks above 0 wait for the claim
    of rank 0 and join only their own gang. Raises NewerAttempt, StoreTrouble."""
    if newer_exists(store, attempt):
        raise NewerAttempt
    if own.rank:
        first = claims.read(store, attempt, 0)
        if first is None:
            raise StoreTrouble("rank 0 has not claimed the attempt yet")
        if first.gang != own.gang:
            return first
    return claims.take(store, attempt, own)


def newer_exists(store: ObjectFolder, attempt: int) -> bool:
    """Whether a later attempt of the job exists that does not stand by; then this one must write nothing.

    Checks all later numbers, because an attempt that ended before its preparation has no folder. The lease of a later
    one is not verified: only its agents know its key. Raises StoreTrouble.
    """
    later = [int(name) for name in store.folders(ATTEMPTS) if name.isdecimal() and int(name) > attempt]
    return not all(_stands_by(store, number) for number in later)


def _stands_by(store: ObjectFolder, attempt: int) -> bool:
    """Whether that attempt stands by, or has no lease yet: nothing begins without one."""
    try:
        lease = store.read_json(attempt_path(attempt, "lease.json"))
        return lease is None or Lease.from_json(lease).standby
    except ValueError as error:
        raise StoreTrouble(f"the lease of attempt {attempt} cannot be read: {error}") from error


def retry_while_unreachable(call: Callable[[], _Result], patience: float, stopped: Callable[[float], bool]) -> _Result:
    """Repeat the call while the store fails.

    ``stopped`` waits for the given seconds and returns whether to stop. Raises StoreTrouble after ``patience`` seconds,
    or after a stop.
    """
    deadline, pause = time.monotonic() + patience, 0.05
    while True:
        try:
            return call()
        except StoreTrouble as error:
            if time.monotonic() + pause > deadline:
                raise
            log.warning("%s; trying again", error)
        if stopped(pause):
            raise StoreTrouble("stopped before it began")
        pause = min(pause * 2, 10.0)
