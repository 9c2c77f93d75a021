"""The narrow interfaces between the core and what can be plugged in: providers, engines, rules.

Optional abilities are protocols of their own; a plug-in that lacks one simply does not have the method. Contract
suites in ``tests/contracts`` hold every registered plug-in to what is written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.capacity import Charge, Instance, Quota, Reservation, ReservationOffer
from broker.core.market.offers import Offer, OfferQuery, SkippedRow
from broker.core.policy.facts import Fact
from broker.core.policy.policy import Action, CaseResult, Facts, IdleLimit, Source, Verdict
from broker.core.values.money import Money


class Provider(Protocol):
    """A source of offers."""

    name: str

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """Every offer that could match ``query``, unavailable ones included with their reason.

        The query is a hint for saving calls: yielding more than it asks for is allowed, less is not. A row that
        cannot be understood is yielded as `SkippedRow` and the rest still arrives. Read-only, safe to repeat. Raises
        `RetryLater`, `LoginMissing` or `GiveUp`, possibly after some offers were yielded; those stay valid.
        """
        ...


@runtime_checkable
class LivesWithBroker(Protocol):
    """A provider whose offers cost nothing to ask for and are asked anew before each decision (owned, sandbox)."""

    refresh_before_deciding: bool


@runtime_checkable
class HasQuotas(Protocol):
    """A provider that knows what the account may run."""

    def quotas(self) -> Iterator[Quota]:
        """Every quota on machines, all regions. Read-only. Raises `RetryLater`, `LoginMissing`, `MissingExtra` or
        `GiveUp`, possibly after some were yielded; so do all the protocols below."""
        ...


@runtime_checkable
class HasReservations(Protocol):
    """A provider that knows what capacity and discounts the account holds."""

    def reservations(self) -> Iterator[Reservation]:
        """What is held now or will be, all regions. Read-only."""
        ...


@runtime_checkable
class SellsReservations(Protocol):
    """A provider that sells capacity for a stretch of time ahead."""

    def reservation_offers(self, query: OfferQuery) -> Iterator[ReservationOffer | SkippedRow]:
        """What can be bought now; buys nothing. The query is a hint, as in `Provider.offers`."""
        ...


@runtime_checkable
class RunsInstances(Protocol):
    """A provider whose machines can be found and ended beside the engine that started them."""

    def instances(self) -> Iterator[Instance]:
        """Every machine of the account that carries gpubroker's tag and is not gone for good. Read-only."""
        ...

    def terminate(self, id: str) -> None:
        """End the machine for good. Idempotent: what is gone or never was is fine. Raises what the others raise."""
        ...


@runtime_checkable
class HasCharges(Protocol):
    """A provider that tells what it charged."""

    def charges(self, since: datetime) -> Iterator[Charge]:
        """What was charged from that time (UTC) on, in the finest steps there are; estimates are marked. Read-only."""
        ...


class EngineState(StrEnum):
    """What an engine says of one machine (or gang)."""

    QUEUED = "queued"
    PENDING = "pending"
    UP = "up"
    GONE = "gone"
    LOST = "lost"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at one handle. ``evidence``: one line for people.

    ``QUEUED``: it waits in a queue (Slurm's, a pod that is not scheduled); no machine exists, none is billed, and how
    long that takes says nothing. ``PENDING``: a machine is being started. ``UP``: there is one. ``GONE``: the machine
    existed and is known to be away; billing ends at ``gone_at``. ``LOST``: the engine does not know the handle (any
    more); never an exception. ``ELSEWHERE``: the handle is another machine's, user's or home's, of which this engine
    here cannot know; nothing follows from it.

    ``since``: when billing of the machine started (UTC); where it is billed while it starts, ``PENDING`` tells it
    already; None where nothing is billed, or it is not known. ``interrupted``: the provider took it back, as opposed to
    the job ending or failing. ``no_capacity``: it is gone because the provider had none to give: none ever existed, and
    none is billed, whatever ``since`` was told before.
    """

    state: EngineState
    since: datetime | None = None
    gone_at: datetime | None = None
    interrupted: bool = False
    evidence: str = ""
    no_capacity: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """All an engine needs to start one attempt.

    ``key``: the attempt's key (letters, digits, dashes; ≤ 40 characters); submit is idempotent on it. ``run_folder``:
    the object-store URL of the attempt's run folder, in which ``spec.json`` and ``lease.json`` already lie.
    ``secrets``: values to hand to the node without writing them anywhere. ``store``: the id of the store that asks for
    it, which the machine is tagged with where machines have tags (`broker.core.market.machines`).
    """

    key: str
    job: Job
    placement: Placement
    run_folder: str
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    store: str = ""


class Engine(Protocol):
    """Something that runs machines.

    ``honours``: which of `Job.needs` it can do; an offer whose engine lacks one is infeasible, never silently short.
    ``remote``: machines are elsewhere and cannot read this machine's disk.
    """

    name: str
    honours: frozenset[str]
    remote: bool

    def submit(self, launch: Launch) -> str:
        """Start the attempt and return its handle. Idempotent on ``launch.key``: called twice, one machine runs the
        job (the agent's claim in the run folder proves it). Raises `RetryLater`, `TryAnotherOffer`, `AskAPerson` or
        `GiveUp`; after any of them nothing is left running that the engine knows of."""
        ...

    def find(self, key: str) -> str | None:
        """The handle of a submitted key, or None if the engine knows nothing of it. An engine whose machines belong to
        one place (see `EngineState.ELSEWHERE`) speaks for that place only."""
        ...

    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        """One batched look; an entry for every handle asked about, `LOST` for unknown ones, `ELSEWHERE` for those that
        only another place can know."""
        ...

    def cancel(self, handle: str) -> None:
        """End the machine: SIGTERM, grace, then by force. Returns at once; idempotent; unknown handles are fine, and
        those from elsewhere are left alone."""
        ...

    def logs(self, handle: str) -> Iterator[str]:
        """The lines the command has printed so far, oldest first; nothing for unknown handles."""
        ...


class Rule(Protocol):
    """One rule of a policy file, already bound to its configuration, its scope and its place in the file."""

    @property
    def kind(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> Source: ...

    def judge(self, action: Action, facts: Facts) -> Verdict:
        """Allow, ask or deny, with reasons and figures. Pure: the same arguments give the same verdict. A rule whose
        scope or subject does not match allows."""
        ...

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        """The facts on which its verdict on this action depends, where it objects: what an approval of it covers. Left
        out are the amount, the time and the number of GPUs, which every approval limits, and time that passes by
        itself. Pure."""
        ...


@runtime_checkable
class LimitsIdleness(Protocol):
    """A rule that a node can hold by itself, from what it sees of its accelerators."""

    def idle_limit(self, action: Action) -> IdleLimit | None:
        """What ends the job of the action where it runs; None where the rule is not about it. Pure."""
        ...


@dataclass(frozen=True, slots=True)
class BudgetSpec:
    """What the ledger must add up for one budget: whose money, which kinds, which periods. Limits stay in the rule.

    ``id`` is unique within the policy set. Empty scope tuples match everything; names in them may be shell-style
    patterns (`broker.ledger.budgets.matches`). ``period``: day, week, month, quarter, or fixed days as ``first/day
    after the last`` in ISO 8601; ``timezone``: an IANA name.
    """

    id: str
    period: str
    timezone: str
    counts: frozenset[str]
    teams: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyDefaults:
    """What the active set says where a job is silent, and the planner's switches. Intersected over all files.

    ``wait_for_paid``: how long a job may wait for capacity that is paid for already instead of renting; None: not.
    ``value_of_time``: USD that finishing an hour earlier is worth to a job without a deadline; None: nobody said.
    ``end_orphans_after``: how old machines and money that nobody looks after must be to be ended; None: never.
    ``max_unattended``: how long rented machines go on when no broker looks after them; None: as they are paid."""

    max_duration: timedelta = timedelta(hours=24)
    allow_reference_prices: bool = False
    allow_stale_prices: bool = False
    cpu_jobs_on_gpus: bool = False
    grants_cash: bool = False
    capacity_order: tuple[str, ...] = ()
    wait_for_paid: timedelta | None = None
    value_of_time: Money | None = None
    end_orphans_after: timedelta | None = None
    max_unattended: timedelta | None = None


class PolicySet(Protocol):
    """The active policies, as the use cases see them."""

    @property
    def version(self) -> str:
        """Changes when anything is said differently."""
        ...

    @property
    def defaults(self) -> PolicyDefaults: ...

    @property
    def rules(self) -> Sequence[Rule]:
        """The rules that the files say, in file order, without the built-in ones."""
        ...

    @property
    def needs_usage(self) -> bool:
        """Whether some rule must know what the accelerators of a running job do (`Action.usage`)."""
        ...

    @property
    def counts_live(self) -> bool:
        """Whether some rule counts what runs (`Facts.live`), so that a record of the decision must have it."""
        ...

    @property
    def asks(self) -> bool:
        """Whether some rule asks somebody first, so that what was approved (`Facts.grants`) matters."""
        ...

    @property
    def teams(self) -> frozenset[str]:
        """The teams that the files list; where there are none, any name may be one."""
        ...

    @property
    def uncertain_names(self) -> Sequence[tuple[str, str, Source]]:
        """Names in scopes, and of approvers, that the files alone cannot vouch for, in file order: what each names
        (``user``, ``team``, ``project``, ``environment`` or ``approver``), the name, and its place. Patterns, teams
        that are listed and their members are left out."""
        ...

    @property
    def said_at(self) -> Mapping[str, Source]:
        """Where the file says it that decides a default, by the field of `PolicyDefaults`; what is missing is built
        in."""
        ...

    @property
    def order_exceptions(self) -> Sequence[tuple[Any, tuple[str, ...], Source]]:
        """Who has an order of capacity of their own (a scope that prints itself), which, and where that stands."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """What is right by itself and may not be meant: what the files allow only one without the other, so that
        together they allow nothing; rules of one file about some of the same jobs; conditions on what a job need not
        say. A sentence each, with its place."""
        ...

    def budgets(self, job: Job, user: str) -> Sequence[BudgetSpec]:
        """The budgets that a job of that user falls under; their ledger state goes into `Facts.budgets`."""
        ...

    def capacity_order(self, job: Job) -> tuple[str, ...]:
        """Which capacity types come first for a job, whatever they cost: the order of the first exception
        that is about it, else the one for everybody; empty where cost decides."""
        ...

    def when(self, rule: str) -> str:
        """The condition of the rule of that name, as it is written; empty without one."""
        ...

    def written(self, rule: str) -> Mapping[str, Any]:
        """The budget or guardrail of that name as it stands in its file; empty for what no file says."""
        ...

    def approvers(self, rule: str) -> tuple[str, ...]:
        """Whom the rule of that name asks, names or patterns; nobody where it does not ask."""
        ...

    def judge(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        """Every rule's verdict, the built-in ones (membership, no budget → no cash) included, in file order."""
        ...

    def try_cases(self, file: str, text: str) -> Sequence[CaseResult]:
        """What is said to every case of a file of policy cases. Raises `InvalidInput` with every mistake in it."""
        ...
