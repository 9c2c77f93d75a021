"""Errors, classed by what the caller does next.

::

    BrokerError                    something a person can be told in one sentence, with what to do next
    ├── RetryLater                 the same call may work in a while; back off and repeat
    │   ├── Throttled              the service asked us to slow down (``after`` seconds, if it said)
    │   └── Unreachable            time-out, connection refused, 5xx
    ├── TryAnotherOffer            this capacity is no use now; others may be
    │   ├── NoCapacity             sold out
    │   └── QuotaExceeded          our account may not have that much of it
    ├── AskAPerson                 nothing goes on until somebody does something
    │   ├── LoginMissing           no or expired credentials; says which variable or command
    │   │   ├── NoLogin            none were given at all
    │   │   ├── SecretsAbsent      a job's secrets are not in this process's environment
    │   │   └── OwnerOnly          a job's commands would run as somebody else than its owner
    │   ├── InvalidInput           a file, flag or setting is wrong; says where and what was expected      (exit 2)
    │   ├── UnknownName            no such provider, job, rule, …; says what was probably meant            (exit 2)
    │   ├── NotAllowed             a policy says no                                                        (exit 3)
    │   ├── ApprovalNeeded         a policy says: ask first                                                (exit 6)
    │   ├── UnreadableJob          this version cannot read what the store has of a job                    (exit 5)
    │   ├── MissingExtra           an optional part is not installed; says the command                     (exit 2)
    │   └── StoreProblem           the database is newer, read-only, locked, or full
    └── GiveUp                     it will not work, however often it is tried
        ├── Refused                the service understood and said no
        └── Malformed              the service's answer makes no sense

Exceptions of SDKs, databases and operating systems never cross a room's border: adapters, engines and the store turn
them into one of these. `exit_code` is what the command line ends with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from broker.core.values.money import Money


class BrokerError(Exception):
    """Base of everything gpubroker raises on purpose. ``where``: file:line or provider/region; ``hint``: what next."""

    exit_code = 5

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class RetryLater(BrokerError):
    """The same call may work later."""


class Throttled(RetryLater):
    """The service asked for fewer requests; ``after`` is its wish in seconds, if it stated one."""

    def __init__(self, message: str, *, after: float | None = None, where: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.after = after


class Unreachable(RetryLater):
    """Time-out, refused connection, or a 5xx answer."""


class TryAnotherOffer(BrokerError):
    """This offer cannot be had now; the next one may be."""


class NoCapacity(TryAnotherOffer):
    """Sold out."""


class QuotaExceeded(TryAnotherOffer):
    """The account's quota does not reach."""


class AskAPerson(BrokerError):
    """Nothing goes on until somebody acts."""

    exit_code = 2


class LoginMissing(AskAPerson):
    """Credentials are absent or expired; ``hint`` names the variable or the command."""

    exit_code = 5


class NoLogin(LoginMissing):
    """No credentials were given at all: not a fault where nobody asked for this provider by name."""


class SecretsAbsent(LoginMissing):
    """A job's secrets, ``names``, are not in this process's environment. ``owner``: whose job it is, where this process
    runs as somebody else, ``process_user``."""

    def __init__(self, names: Sequence[str], *, owner: str = "", process_user: str = "") -> None:
        if owner:
            message = f"the secrets of {owner}'s job are not in the environment of {process_user}"
            hint = f"{owner} runs any gpubroker command where they are exported"
        else:
            message = f"secrets not in the environment of the reconciler: {', '.join(names)}"
            hint = "export them, then run any gpubroker command there"
        super().__init__(message, hint=hint)
        self.names = tuple(names)
        self.owner = owner
        self.process_user = process_user


class OwnerOnly(LoginMissing):
    """A job of ``owner`` would run its commands on this machine as ``process_user``, and must not."""

    def __init__(self, owner: str, process_user: str) -> None:
        super().__init__(
            f"a job of {owner} is not run here as {process_user}",
            hint=f"{owner} runs any gpubroker command, or a `gpubroker serve` looks after all jobs",
        )
        self.owner = owner
        self.process_user = process_user


def place(file: str, line: int, column: int = 0) -> str:
    """Where something stands, as everything here tells it: ``team.yaml:12:5``, without what is not known (0)."""
    return ":".join([file, *(str(number) for number in (line, column) if line and number)])


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing wrong in a document: where (1-based line and column, 0 when not known), at which key, and what.

    ``unknown_key``: what is wrong is that nobody knows the key. ``known``: the names that could stand there, where the
    ``message`` ends with them (`known_here`)."""

    line: int
    column: int
    key: str
    message: str
    unknown_key: bool = field(default=False, compare=False)
    known: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.key + ': ' if self.key else ''}{self.message}"


def known_here(names: Iterable[str]) -> str:
    """How a message ends that lists the names that could stand there."""
    return f"; known here: {', '.join(names)}"


JOB_FILE, POLICY_FILE = "job file", "policy file"
"""Kinds of files that `InvalidInput.document` names, and messages too."""


class InvalidInput(AskAPerson):
    """A file, flag or setting is wrong. ``problems`` lists each finding with its place; ``others``: what is wrong with
    further files that were read with this one. ``document``: what kind of file it was read as; empty if it is none."""

    def __init__(
        self,
        message: str,
        *,
        where: str = "",
        hint: str = "",
        problems: Sequence[Problem] = (),
        others: Sequence[InvalidInput] = (),
        document: str = "",
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.document = document
        self.problems = tuple(problems)
        self.others = tuple(others)


class UnknownName(AskAPerson):
    """No such thing. The hint says what was probably meant."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, where: str = "") -> None:
        names = sorted(known)
        meant = did_you_mean(name, names)
        super().__init__(
            f"unknown {kind} {name!r}{meant}",
            where=where,
            hint="" if meant or not names else f"known: {', '.join(names)}",
        )


@dataclass(frozen=True, slots=True)
class Alternative:
    """A request close to a refused one that the same policies let pass, now or from ``not_before`` (UTC) on.

    ``max_cost`` (USD) and ``max_duration``: its limits; None where the request has none. ``needs_approval``: it passes
    once somebody approves it. ``instruction``: the command to type, or the line to write in the job file.
    """

    instruction: str
    max_cost: Money | None = None
    max_duration: timedelta | None = None
    not_before: datetime | None = None
    needs_approval: bool = False


class NotAllowed(AskAPerson):
    """A policy denies it. ``alternatives``: what would pass, where that was looked for."""

    exit_code = 3

    def __init__(
        self, message: str, *, where: str = "", hint: str = "", alternatives: Sequence[Alternative] = ()
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.alternatives = tuple(alternatives)


class ApprovalNeeded(AskAPerson):
    """A policy wants somebody's approval first."""

    exit_code = 6


class MissingExtra(AskAPerson):
    """An optional part of gpubroker is not installed."""

    def __init__(self, extra: str, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs the optional part {extra!r}", hint=f"install it: pip install 'gpubroker[{extra}]'"
        )
        self.extra = extra


class UnreadableJob(AskAPerson):
    """This version of gpubroker cannot read what the store has of a job, so it leaves the job alone. Its money goes on
    being held, and its machines run on until what was held for them is used up. ``newer``: a newer version wrote it.
    ``name``, ``user`` and ``state``: as far as the store tells them beside it."""

    exit_code = 5

    def __init__(
        self, job_id: str, because: str, *, newer: bool = False, name: str = "", user: str = "", state: str = ""
    ) -> None:
        hint = "upgrade gpubroker on this host" if newer else "look at it from a host with the newest gpubroker"
        super().__init__(f"job {job_id} cannot be read here: {because}", hint=hint)
        self.job_id = job_id
        self.because = because
        self.newer = newer
        self.name = name
        self.user = user
        self.state = state


class StoreProblem(AskAPerson):
    """The database cannot be used as it is."""


class GiveUp(BrokerError):
    """It will not work, however often it is tried."""


class Refused(GiveUp):
    """The service understood the request and said no. ``code``: the service's own code for why, where it has one."""

    def __init__(self, message: str, *, code: str = "", where: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.code = code


class Malformed(GiveUp):
    """The answer makes no sense."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the closest known name, or an empty string."""
    meant = closest(name, known)
    return "" if meant is None else f"; did you mean {meant!r}?"


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one; None where none is much like it."""
    lowered = {candidate.lower(): candidate for candidate in known}
    found = get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    return lowered[found[0]] if found else None
