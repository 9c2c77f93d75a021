"""Errors, classed by what the caller does next.

::

    BrokerError                    one sentence for a person, with the next step
    ├── RetryLater                 the same call may work later; back off and repeat
    │   ├── Throttled              the service asked us to slow down (``after`` seconds, if given)
    │   └── Unreachable            time-out, connection refused, 5xx
    ├── TryAnotherOffer            this capacity cannot be used now; others may be
    │   ├── NoCapacity             sold out
    │   └── QuotaExceeded          the account's quota does not allow it
    ├── AskAPerson                 a person must act first
    │   ├── LoginMissing           no or expired credentials; names the variable or command
    │   │   ├── NoLogin            no credentials at all
    │   │   ├── SecretsAbsent      a job's secrets are not in this process's environment
    │   │   └── OwnerOnly          a job's commands would run as another user than its owner
    │   ├── InvalidInput           a file, flag or setting is wrong; says where and what was expected      (exit 2)
    │   ├── UnknownName            no such provider, job, rule, …; suggests a name                         (exit 2)
    │   ├── NotAllowed             a policy denies it                                                      (exit 3)
    │   │   └── Conflict           its state does not permit it (any more)                                 (exit 3)
    │   ├── ApprovalNeeded         a policy requires an approval                                           (exit 6)
    │   ├── UnreadableJob          this version cannot read the job's record                               (exit 5)
    │   ├── MissingExtra           an optional dependency is not installed; names the command              (exit 2)
    │   └── StoreProblem           the database is newer, read-only, locked, or full
    └── GiveUp                     retrying will not help
        ├── Refused                the service understood and refused
        └── Malformed              the service's answer is malformed

Adapters, engines and the store convert the exceptions of SDKs, databases and operating systems into these. `exit_code`
gives the exit code of the command line.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from broker.core.extras import install_command

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from broker.core.values.money import Money


class BrokerError(Exception):
    """Base of everything gpubroker raises on purpose. ``where``: file:line or provider/region; ``hint``: the next
    step."""

    exit_code = 5

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")  # Python prints notes below the message

    def __reduce__(self) -> tuple[object, ...]:
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]  # not in typeshed

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message

    @property
    def with_hint(self) -> str:
        """The whole text, in one line."""
        return f"{self} ({self.hint})" if self.hint else str(self)


class RetryLater(BrokerError):
    """The same call may work later."""


class Throttled(RetryLater):
    """The service asked for fewer requests; ``after``: seconds to wait, if given."""

    def __init__(self, message: str, *, after: float | None = None, where: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.after = after


class Unreachable(RetryLater):
    """Time-out, refused connection, or a 5xx answer."""


class HostUnknown(Unreachable):
    """The host name has no address. Retrying at once does not help, for example without a network."""


class TryAnotherOffer(BrokerError):
    """This offer is not available now; another one may be."""


class NoCapacity(TryAnotherOffer):
    """Sold out."""


class QuotaExceeded(TryAnotherOffer):
    """The account's quota does not allow it."""


class AskAPerson(BrokerError):
    """A person must act first."""

    exit_code = 2


class LoginMissing(AskAPerson):
    """Credentials are absent or expired; ``hint`` names the variable or the command."""

    exit_code = 5


class NoLogin(LoginMissing):
    """No credentials at all: an error only if the provider was requested by name."""


class SecretsAbsent(LoginMissing):
    """A job's secrets, ``names``, are not in this process's environment. ``owner``: the job's owner, if this process
    runs as another user, ``process_user``.
    """

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
            hint=f"{owner} runs any gpubroker command, or a `gpubroker serve` runs all jobs",
        )
        self.owner = owner
        self.process_user = process_user


def place(file: str, line: int, column: int = 0) -> str:
    """A position as all messages print it: ``team.yaml:12:5``, without unknown (0) parts."""
    return ":".join([file, *(str(number) for number in (line, column) if line and number)])


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem in a document: its position (1-based line and column, 0 if unknown), key, and message.

    ``unknown_key``: the key itself is unknown. ``known``: valid names, if the ``message`` ends with them
    (`known_names_suffix`).
    """

    line: int
    column: int
    key: str
    message: str
    unknown_key: bool = field(default=False, compare=False)
    known: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.key + ': ' if self.key else ''}{self.message}"


def known_names_suffix(names: Iterable[str]) -> str:
    """The end of a message, with the valid names."""
    return f"; known here: {', '.join(names)}"


JOB_FILE, POLICY_FILE = "job file", "policy file"
"""The kinds of files, as `InvalidInput.document` and messages name them."""


class InvalidInput(AskAPerson):
    """A file, flag or setting is wrong. ``problems``: findings with positions; ``others``: those of files read together
    with this one. ``document``: the kind of file, empty if none.
    """

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
        for note in map(str, self.problems):
            if note not in message:
                self.add_note(note)


_MAX_LISTED = 30  # most names in a hint
_EXAMPLES = 5
_LISTED_BY = {
    "advice": "report review",
    "budget": "budget",
    "checkpoint": "jobs files JOB --checkpoints",
    "document": "schema",
    "holding": "capacity list",
    "job": "jobs list",
    "open launch": "launches",
    "person": "people list",
    "provider": "prices status",
    "purchase": "capacity purchases --all",
    "quote": "capacity quote",
    "result": "jobs files JOB",
    "standing grant": "approvals list",
    "step": "jobs files JOB --checkpoints",
    "token": "tokens list",
    "watch": "prices watch list",
}
"""The command that lists the names of a kind."""


class UnknownName(AskAPerson):
    """Unknown name. The message suggests ``meant`` or the most similar known name; without one, the hint lists known
    names, or names the command that does."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, where: str = "", meant: str = "") -> None:
        names = sorted(known)
        suggestion = f"; did you mean {meant!r}?" if meant else did_you_mean(name, names)
        hint = "" if suggestion else _names_hint(names, name, _LISTED_BY.get(kind))
        super().__init__(f"unknown {kind} {name!r}{suggestion}", where=where, hint=hint)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A request close to a denied one that the same policies allow, now or from ``not_before`` (UTC).

    ``max_cost`` (USD) and ``max_duration``: its limits; None for no limit. ``needs_approval``: allowed after an
    approval. ``instruction``: the command to run, or the line for the job file.
    """

    instruction: str
    max_cost: Money | None = None
    max_duration: timedelta | None = None
    not_before: datetime | None = None
    needs_approval: bool = False


class NotAllowed(AskAPerson):
    """A policy denies it. ``alternatives``: allowed requests, if searched for."""

    exit_code = 3

    def __init__(
        self, message: str, *, where: str = "", hint: str = "", alternatives: Sequence[Alternative] = ()
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.alternatives = tuple(alternatives)


class Conflict(NotAllowed):
    """What the request is about is in another state than it needs: decided, ended or changed by somebody already."""


class ApprovalNeeded(AskAPerson):
    """A policy requires an approval first."""

    exit_code = 6


class MissingExtra(AskAPerson):
    """An optional part of gpubroker is not installed."""

    def __init__(self, extra: str, needed_for: str) -> None:
        hint = f"install it: {install_command(extra)}"
        super().__init__(f"{needed_for} needs the optional part {extra!r}", hint=hint)
        self.extra = extra


class UnreadableJob(AskAPerson):
    """This version of gpubroker cannot read the record of a job, so it leaves the job alone. Its money stays held, and
    its machines run until their funded time ends. ``newer``: a newer version wrote it. ``name``, ``user`` and
    ``state``: from the store's other columns, if known.
    """

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
    """The database cannot be used in its current state."""


class OutcomeUnknown(BrokerError):
    """A call was interrupted and may have taken effect. Check whether it did; never repeat it."""


class CommitUnknown(StoreProblem, OutcomeUnknown):
    """A transaction was interrupted during its commit: its changes may have been stored."""


class GiveUp(BrokerError):
    """Retrying will not help."""


class Refused(GiveUp):
    """The service understood the request and refused. ``code``: the service's error code, if any."""

    def __init__(self, message: str, *, code: str = "", where: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.code = code


class Malformed(GiveUp):
    """The service's answer is malformed."""


def _names_hint(names: Sequence[str], wanted: str, command: str | None) -> str:
    """The known names. If there are many: the number, the most similar ones or the first, and the command that lists
    all; if none is known, that command alone."""
    if not names:
        return f"see `gpubroker {command}`" if command else ""
    if len(names) <= _MAX_LISTED:
        return f"known: {', '.join(names)}"
    near = get_close_matches(wanted.lower(), [name.lower() for name in names], n=_EXAMPLES, cutoff=0.3)
    examples = [name for name in names if name.lower() in near] or names
    advice = f"; `gpubroker {command}` lists them" if command else ""
    return f"{len(names)} are known, such as {', '.join(examples[:_EXAMPLES])}{advice}"


def did_you_mean(name: str, known: Iterable[str], similar: float = 0.6) -> str:
    """``"; did you mean 'x'?"`` for the closest known name, at least so ``similar``, or an empty string."""
    meant = closest(name, known, similar)
    return "" if meant is None else f"; did you mean {meant!r}?"


def unknown_team_text(team: str, listed: Iterable[str]) -> str:
    """What is wrong with a team that no policy lists, although they list others."""
    names = sorted(listed)
    return f"no policy lists a team {team!r}{did_you_mean(team, names) or known_names_suffix(names)}"


def closest(name: str, known: Iterable[str], similar: float = 0.6) -> str | None:
    """The most similar known name; None if none is similar."""
    lowered = {candidate.lower(): str(candidate) for candidate in known}  # of enums, their values
    matches = get_close_matches(name.lower(), lowered, n=1, cutoff=similar)
    return lowered[matches[0]] if matches else None
