"""The interfaces between the core and plug-ins: providers, engines, rules.

Optional abilities are separate protocols; a plug-in without one simply lacks the method. Contract suites in
``tests/contracts`` check every registered plug-in against this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from glob import escape
from typing import Any, Protocol, runtime_checkable

from broker.core.errors import BrokerError
from broker.core.job.jobs import Job, Priority
from broker.core.job.placements import Placement
from broker.core.market.capacity import Charge, Instance, MachineOutside, Reservation
from broker.core.market.offers import Offer, OfferQuery, SkippedRow
from broker.core.market.shares import MachineShare
from broker.core.policy.facts import Fact
from broker.core.policy.policy import (
    Action,
    CaseResult,
    Facts,
    IdleLimit,
    PolicyName,
    RentedHours,
    Source,
    SpotShare,
    Verdict,
)
from broker.core.values.money import Money
from broker.core.values.units import Seconds


class Provider(Protocol):
    """A source of offers."""

    name: str

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """Every offer that could match ``query``, including unavailable ones with their reason. The query only saves
        calls: more may be yielded. A malformed row is yielded as `SkippedRow`, and the rest follows. Read-only. Raises
        `RetryLater`, `LoginMissing` or `GiveUp`; offers yielded before the error stay valid."""


@runtime_checkable
class HasReservations(Protocol):
    """A provider that lists the account's capacity reservations and discounts."""

    def reservations(self) -> Iterator[Reservation]:
        """Current and future reservations in all regions. Read-only. Raises, like all methods of the protocols below,
        `RetryLater`, `LoginMissing`, `MissingExtra` or `GiveUp`; items yielded before the error stay valid."""


@runtime_checkable
class RunsInstances(Protocol):
    """A provider whose machines can be listed and ended without the engine that started them."""

    def instances(self) -> Iterator[Instance]:
        """Every machine of the account with gpubroker's tag that is not terminated. Read-only."""

    def terminate(self, id: str) -> None:
        """Terminate the machine. Idempotent: a missing machine is no error."""


@runtime_checkable
class HasCharges(Protocol):
    """A provider that reports charges."""

    def charges(self, since: datetime) -> Iterator[Charge]:
        """Charges since that time (UTC), in the finest steps available; estimates are marked. Read-only."""


@runtime_checkable
class HasConversions(Protocol):
    """A provider that converts prices from another currency."""

    def conversions(self) -> Sequence[str]:
        """The exchange rates that the last `Provider.offers` used, each with its date and source. Sends no request."""


@runtime_checkable
class ChecksAccess(Protocol):
    """A provider whose login can be tried without changing anything."""

    def check_access(self) -> Iterator[str | BrokerError]:
        """A sentence for each thing that works; for each that does not, the error with its fix. Read-only."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket for run folders. ``url``: for the setting ``runs``; ``location``: ``provider/region``; ``created``: by
    this call; ``undo``: the command that removes it."""

    url: str
    location: str
    created: bool
    undo: str


@runtime_checkable
class MakesBuckets(Protocol):
    """A provider that makes buckets for run folders."""

    def make_bucket(self, name: str) -> Bucket:
        """The bucket of that name, made if it does not exist: private, encrypted, without old versions. One that exists
        is not changed. Nothing is left behind after an error. Raises `InvalidInput` for a name that cannot be used."""


@runtime_checkable
class ChecksClouds(Protocol):
    """An engine over several clouds that knows which of them it may use."""

    def cloud_problem(self, provider: str) -> str:
        """Why it may not start machines of that provider; empty if it may. Raises `RetryLater` or `AskAPerson`."""


class EngineState(StrEnum):
    """The state of one machine (or gang), as its engine reports."""

    QUEUED = "queued"
    PENDING = "pending"
    UP = "up"
    GONE = "gone"
    LOST = "lost"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class Observation:
    """An engine's report on one handle. ``evidence``: one line for people.

    ``QUEUED``: it waits in a queue (Slurm's, an unscheduled pod), for any time, without a machine and without billing.
    ``PENDING``: a machine is starting. ``UP``: it runs. ``GONE``: it no longer exists; billing ends at ``gone_at``.
    ``LOST``: the engine does not know the handle; never an exception. ``ELSEWHERE``: the handle belongs to another
    machine, user or home that this engine cannot see; the caller concludes nothing from it.

    ``since``: start of billing (UTC), possibly while ``PENDING``; None if not billed or unknown. ``interrupted``: the
    provider took the machine back; if the engine can ask the provider, by its answer, since interrupted time may be
    free. ``own_end``: the agent reported no end, or an interruption, and the provider confirms none: a failure of the
    job. ``no_capacity``: the provider had none: no machine existed or is billed, whatever ``since`` was reported
    before. ``outside``: machines that started outside of `Launch.reservations`, once they are gone.
    """

    state: EngineState
    since: datetime | None = None
    gone_at: datetime | None = None
    interrupted: bool = False
    evidence: str = ""
    no_capacity: bool = False
    own_end: bool = False
    outside: tuple[MachineOutside, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """All that an engine needs to start one attempt. ``key``: the attempt's key (letters, digits, dashes; at most 40
    characters). ``run_folder``: object-store URL of the attempt's run folder, which already has ``spec.json`` and
    ``lease.json``. ``secrets``: values for the node, which are written nowhere. ``store``: id of the requesting store,
    for the machine's tag (`broker.core.market.capacity`). ``reservations``: the provider's ids of bought capacity; each
    machine must be in one of them; empty: anywhere."""

    key: str
    job: Job
    placement: Placement
    run_folder: str
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    store: str = ""
    reservations: tuple[str, ...] = ()


class Engine(Protocol):
    """Starts, observes and ends machines. ``honours``: the entries of `Job.needs` that it supports; an offer whose
    engine lacks one is infeasible. ``remote``: its machines cannot read this machine's disk."""

    name: str
    honours: frozenset[str]

    @property
    def remote(self) -> bool: ...

    def submit(self, launch: Launch) -> str:
        """Start the attempt and return its handle. Idempotent on ``launch.key``: after two calls one machine runs the
        job (the agent's claim in the run folder proves it). Raises `RetryLater`, also for an answer that it does not
        know; `Throttled` while the service takes no more; `TryAnotherOffer`; and `AskAPerson` or `GiveUp` only for
        what cannot change by itself. After an error, `find` says whether it was started all the same."""

    def find(self, key: str) -> str | None:
        """The handle of a submitted key; None if the engine does not know it. An engine whose machines belong to one
        place (see `EngineState.ELSEWHERE`) knows only that place."""

    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        """The state of every handle, in one query: `LOST` for unknown ones, `ELSEWHERE` for those of another place."""

    def cancel(self, handle: str) -> None:
        """End the machine: SIGTERM, a grace period, then by force. Returns at once; idempotent; ignores unknown handles
        and those from elsewhere."""


@runtime_checkable
class SharesItsMachine(Protocol):
    """An engine on one machine that the brokers of several stores share."""

    def given_to_others(self, store: Callable[[], str]) -> MachineShare:
        """The part of the machine that jobs of other stores have now."""


@dataclass(frozen=True, slots=True)
class EntryCommand:
    """A program on this machine that runs ``gpubroker-agent enter`` (`broker.agent.enter`) on the machine of a job,
    with its own standard streams. ``whole_lines``: its output arrives only as whole lines of text."""

    arguments: tuple[str, ...]
    whole_lines: bool = False


@runtime_checkable
class SupportsEntry(Protocol):
    """An engine that can run a program inside a running job."""

    def way_in(self, handle: str, node: int, words: Sequence[str], *, terminal: bool) -> EntryCommand:
        """How to run the program on that node of the job. ``words``: the arguments of ``enter`` after those that name
        the job's command; ``terminal``: the program gets a terminal. Does not start the program. Raises `GiveUp` for a
        job of another place, `RetryLater` for a machine that is not up."""


class Rule(Protocol):
    """One rule of a policy file, already bound to its configuration, its scope and its place in the file."""

    @property
    def kind(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> Source: ...

    def judge(self, action: Action, facts: Facts) -> Verdict:
        """Allow, ask or deny, with reason and figures. Pure. Allows actions outside its scope or subject."""

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        """The facts on which an objection to this action depends; an approval covers them. Amount, time and number of
        GPUs are not among them, since every approval limits these; nor is the passing of time. Pure."""


@runtime_checkable
class LimitsIdleness(Protocol):
    """A rule that a node can enforce alone, from its accelerators' utilization."""

    def idle_limit(self, action: Action) -> IdleLimit | None:
        """The limit for the action's job while it runs; None if the rule does not apply. Pure."""


@dataclass(frozen=True, slots=True)
class BudgetSpec:
    """The sums that the ledger computes for one budget: scope, kinds of money, periods. The rule has the limits.

    ``id`` is unique within the policy set. Empty scope tuples match everything; names in them may be shell-style
    patterns (`broker.ledger.budgets.matches`). ``period``: day, week, month, quarter, or fixed days as ``first/day
    after the last`` in ISO 8601; ``timezone``: an IANA name. ``per``: ``user``, ``team`` or ``project`` if each one has
    the whole amount (`share`), else empty.
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
    per: str = ""

    @property
    def rule(self) -> str:
        """The name of the budget, also of a share."""
        return self.id.partition("/")[0]

    def share(self, name: str | None) -> BudgetSpec:
        """The budget of one user, team or project; the budget itself if it is not divided."""
        if not self.per or not name:
            return self
        scope: dict[str, Any] = {f"{self.per}s": (escape(name),)}
        return replace(self, id=f"{self.id}/{name}", per="", **scope)


@dataclass(frozen=True, slots=True)
class HoldingLimits:
    """Limits of proposals to own or reserve. ``utilisation``: percentage of hours in which each GPU must have been
    needed; ``horizon``: longest term; ``break_even``: percentage of hours of use above which holding must cost less
    than renting. None: no limit."""

    utilisation: float | None = None
    horizon: Seconds | None = None
    break_even: float | None = None


@dataclass(frozen=True, slots=True)
class PreemptionRight:
    """Jobs of this ``priority`` may take the places of running jobs of lower priority, of each only after
    ``min_runtime``, and at most ``per_day`` times in 24 hours."""

    priority: Priority
    min_runtime: Seconds
    per_day: int


MIN_HISTORY = timedelta(days=30)  # the minimum of `keep_prices`
MIN_NOTICE_RETENTION = timedelta(days=100)  # the minimum of `keep_notices`: notices of bills may recur for 93 days


@dataclass(frozen=True, slots=True)
class PolicyDefaults:
    """Defaults of the active policies for jobs, and the planner's switches, combined over all files.

    ``wait_for_paid``: maximum wait for prepaid capacity instead of renting; None: no wait. ``value_of_time``: USD per
    hour of an earlier finish, for jobs without a deadline; None if unset. ``end_orphans_after``: age at which machines
    and holds without a job are ended; None: never. ``max_unattended``: maximum time of rented machines without a
    broker; None: their funded time. ``holding``: limits of what capacity plans propose. ``keep_checkpoints``,
    ``keep_results``, ``keep_logs``, ``keep_snapshots``: how long files of a job stay after its end; None: until a
    person deletes them. ``keep_prices``, ``keep_notices``: how long price history and delivered notices stay before
    they are deleted; None: forever. ``hold_quantile``: the share of runs (percent) that the hold of a job with known
    work covers; 100: its whole time limit; None: 95, and 100 for a job that names its limit. ``unknown_disk``: USD per
    GiB and month of a disk of unknown price; None: the built-in upper bound. ``timezone``: of reports.
    ``preempts``: the priorities whose jobs may take places of others. ``overlap``: whether a job that moves may pay for
    two machines while the new one starts.
    """

    max_duration: Seconds = timedelta(hours=24)
    allow_reference_prices: bool = False
    allow_stale_prices: bool = False
    cpu_jobs_on_gpus: bool = False
    grants_cash: bool = False
    capacity_order: tuple[str, ...] = ()
    wait_for_paid: Seconds | None = None
    value_of_time: Money | None = None
    end_orphans_after: Seconds | None = None
    max_unattended: Seconds | None = None
    holding: HoldingLimits = HoldingLimits()
    keep_checkpoints: Seconds | None = None
    keep_results: Seconds | None = None
    keep_logs: Seconds | None = None
    keep_snapshots: Seconds | None = None
    keep_prices: Seconds | None = None
    keep_notices: Seconds | None = None
    hold_quantile: float | None = None
    unknown_disk: Money | None = None
    timezone: str | None = None
    preempts: tuple[PreemptionRight, ...] = ()
    overlap: bool = False


class PolicySet(Protocol):
    """The active policies, as the use cases see them."""

    @property
    def version(self) -> str:
        """Changes with the meaning of the files."""

    @property
    def defaults(self) -> PolicyDefaults: ...

    @property
    def rules(self) -> Sequence[Rule]:
        """The rules of the files, in file order, without the built-in ones."""

    @property
    def needs_usage(self) -> bool:
        """Whether some rule needs the utilization of a running job (`Action.usage`)."""

    @property
    def needs_anomalies(self) -> bool:
        """Whether some rule needs a running job's part in anomalies of spending (`Facts.unusual`)."""

    @property
    def needs_holdings(self) -> bool:
        """Whether some rule needs the recorded owned and reserved capacity (`Facts.in_hand`)."""

    @property
    def counts_live(self) -> bool:
        """Whether some rule counts running attempts (`Facts.live`), so that decision records must keep them."""

    @property
    def asks(self) -> bool:
        """Whether some rule requires an approval, so that grants (`Facts.grants`) matter."""

    @property
    def teams(self) -> frozenset[str]:
        """The teams that the files list; if they list none, any name may be a team."""

    def members(self, team: str) -> tuple[str, ...]:
        """The members of a team that the files name, without patterns, in file order; empty if they list none."""

    @property
    def names(self) -> Sequence[PolicyName]:
        """Names that the files alone cannot confirm: those in scopes, of buyers and of approvers (without listed teams
        and members; patterns only if teams or members are listed), patterns of providers, regions and accelerators,
        and texts in conditions."""

    @property
    def said_at(self) -> Mapping[str, Source]:
        """The place that sets each default, by field of `PolicyDefaults`; defaults without a place are built in."""

    @property
    def order_exceptions(self) -> Sequence[tuple[Any, tuple[str, ...], Source]]:
        """Scopes (printable) with their own capacity order, the order, and its place."""

    @property
    def warnings(self) -> Sequence[str]:
        """Likely mistakes, one sentence each with its place: conditions on optional fields, sole approvers, …"""

    def budgets(self, job: Job, user: str) -> Sequence[BudgetSpec]:
        """The budgets that a job of that user falls under; their ledger state goes into `Facts.budgets`."""

    def capacity_order(self, job: Job) -> tuple[str, ...]:
        """The capacity types to use first for a job, regardless of cost: the order of the first matching exception,
        else the general one; empty if cost decides."""

    def is_spot_eligible(self, work: RentedHours) -> bool:
        """Whether such jobs could run on spot: by their own files, and no guardrail forbids it."""

    def spot_shares(
        self, work: RentedHours, now: datetime, rented: Callable[[datetime], Iterable[RentedHours]]
    ) -> Mapping[str, SpotShare]:
        """By rule that demands a share of spot from such a job, the share so far. ``rented``: the GPU-hours since a
        time (UTC)."""

    def when(self, rule: str) -> str:
        """The condition of the named rule as written; empty without one."""

    def warns(self, rule: str) -> bool:
        """Whether the named rule only warns: its verdicts stop nothing."""

    def written(self, rule: str) -> Mapping[str, Any]:
        """The named budget or guardrail as written in its file; empty for built-in rules."""

    def approvers(self, rule: str) -> tuple[str, ...]:
        """The approvers of the named rule, as names or patterns; empty if it requires no approval."""

    def own_requests(self, rule: str) -> bool:
        """Whether the approvers of the named rule may approve their own requests."""

    def judge(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        """Every rule's verdict, the built-in ones (membership, no budget → no cash) included, in file order."""

    def try_cases(self, file: str, text: str) -> Sequence[CaseResult]:
        """Judge every case of a file of policy cases. Raises `InvalidInput` with every problem of the file."""
