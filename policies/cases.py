"""Cases for `policy test`: each has a job, the facts, and the expected verdict. How to write them: docs/policies.md."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator

from broker.core.documents import Document, print_document, read_document
from broker.core.errors import InvalidInput, Problem, UnknownName, did_you_mean
from broker.core.job.file import parse_job
from broker.core.job.file.schema import JobFile
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.accelerators import canonical
from broker.core.market.offers import CapacityType, Interconnect, MoneyKind, Offer
from broker.core.policy import arrays
from broker.core.policy.policy import (
    Action,
    ActionKind,
    Answer,
    BudgetUse,
    CapacityInHand,
    CaseResult,
    Facts,
    LiveAttempt,
    RentedHours,
    Source,
    Usage,
)
from broker.core.ports import PolicySet
from broker.core.validation import validate
from broker.core.values.money import Money
from broker.core.values.provider_names import provider_name
from broker.core.values.units import PositiveDuration
from broker.ledger.budgets import periods_touching
from policies.fields import AttemptCount, GpuCount, GpuHours, Limit, LocalTime, Patterns, Percent, PolicyPart

_MONDAY_NOON = datetime(2026, 1, 5, 12)  # noqa: DTZ001 - a local time, whose zone is UTC as everywhere in cases


def _accelerator(name: str) -> str:
    try:
        return canonical(name)
    except UnknownName as error:
        raise ValueError(error.message) from error


ProviderName = Annotated[str, AfterValidator(provider_name)]
AcceleratorName = Annotated[str, AfterValidator(_accelerator)]


class OfferCase(PolicyPart):
    """The requested capacity; default: an on-demand cloud machine. ``accelerator`` and ``count`` default to the first
    machine that the job names. ``price``: per hour and machine; default $1, or nothing for owned capacity. ``age``:
    time since the price was read.
    """

    provider: ProviderName = "aws"
    region: str = "us-east-1"
    instance_type: str = "machine"
    accelerator: AcceleratorName | None = None
    count: GpuCount | None = None
    capacity_type: CapacityType = CapacityType.ON_DEMAND
    price: Limit | None = None
    money: MoneyKind | None = None
    interconnect: Interconnect | None = None
    reference: bool = False
    age: PositiveDuration = timedelta(0)

    def offer(self, now: datetime, job: Job) -> Offer:
        accelerator, count = self._machine(job)
        free = self.capacity_type is CapacityType.OWNED
        kind = MoneyKind.SANDBOX if self.provider == "sandbox" else MoneyKind.AMORTISED if free else MoneyKind.CASH
        return Offer(
            provider=self.provider,
            region=self.region,
            zone=None,
            instance_type=self.instance_type,
            accelerator=accelerator,
            count=count,
            capacity_type=self.capacity_type,
            price=self.price or (Money.ZERO if free else Money.usd(1)),
            as_of=now - self.age,
            source="test",
            interconnect=self.interconnect,
            money=self.money or kind,
            reference=self.reference,
        )

    def _machine(self, job: Job) -> tuple[str | None, int]:
        """Accelerator and count. A job that names accelerators is never judged as a CPU job."""
        if "accelerator" in self.model_fields_set:
            matches = [resource for resource in job.resources if resource.accelerator == self.accelerator]
        else:
            matches = list(job.resources[:1])
        accelerator = matches[0].accelerator if matches else self.accelerator
        if accelerator is None:
            return None, 0
        return accelerator, self.count or (matches[0].count if matches else 1)


class RunningCase(PolicyPart):
    """A running attempt: of another job, or of the job named ``job``."""

    job: str = ""
    user: str = "somebody"
    team: str | None = None
    project: str | None = None
    workload: str = "training"
    environment: str | None = None
    gpus: GpuCount = 1
    accelerator: AcceleratorName = "H100"
    provider: ProviderName = "aws"
    capacity_type: CapacityType = CapacityType.ON_DEMAND
    money: MoneyKind = MoneyKind.CASH


class InHandCase(PolicyPart):
    """Owned and reserved capacity of an accelerator: its use in the last 7 days, and its price per GPU-hour."""

    gpus: GpuCount = 1
    used: Percent
    price: Limit = Money.usd(1)


class BusyCase(PolicyPart):
    """Utilization of the accelerators at a time in the past."""

    ago: PositiveDuration
    percent: Percent | None = Field(None, description="a percentage; default 0")


class PolicyCase(PolicyPart):
    """A request and its expected verdict. Times are UTC. ``asks``: the money to hold, of one task of an array; default:
    the cost of ``max_duration`` (or the policy's default) at the price. ``because``: rules or codes that must object.
    """

    name: str
    expect: Answer
    because: Patterns = ()
    user: str = "someone"
    job: dict[str, Any] = Field(default_factory=dict)
    offer: OfferCase = Field(default_factory=OfferCase)
    action: ActionKind = ActionKind.LAUNCH
    at: LocalTime = _MONDAY_NOON
    asks: Limit | None = None
    spent: dict[str, Limit] = Field(default_factory=dict)
    held: dict[str, Limit] = Field(default_factory=dict)
    running: tuple[RunningCase, ...] = ()
    in_hand: dict[AcceleratorName, InHandCase] = Field(default_factory=dict)
    rented_hours: dict[Literal["spot", "on_demand"], GpuHours] = Field(
        default_factory=dict, description="GPU-hours of jobs like this one since the window of `min_share` began"
    )
    cost_so_far: Limit | None = None
    ran_for: PositiveDuration = timedelta(0)
    submitted: PositiveDuration | None = Field(None, description="time since the job was submitted")
    attempts: AttemptCount | None = None
    busy: tuple[BusyCase, ...] = ()


class CaseFile(PolicyPart):
    """A file of cases."""

    policies: Patterns = ()
    cases: tuple[PolicyCase, ...]

    @field_validator("cases")
    @classmethod
    def _some(cls, cases: tuple[PolicyCase, ...]) -> tuple[PolicyCase, ...]:
        if not cases:
            raise ValueError("is empty; add at least one case")
        return cases


def judge_cases(policy: PolicySet, file: str, text: str) -> list[CaseResult]:
    """Judge every case of the file. Raises `InvalidInput` with every problem of the file."""
    document = read_document(text, file=file, kind="file of policy cases")
    content, problems = validate(document, CaseFile)
    if content is None:
        document.refuse([*map(_with_job_hint, problems), *_wrong_jobs(document)])
    jobs: list[Job | None] = []
    known_budgets = {rule.name for rule in policy.rules if rule.kind == "budget"}
    for index, case in enumerate(content.cases):
        path = ("cases", index)
        jobs.append(_job(case, document, index, problems))
        for key in ("spent", "held"):
            for budget in getattr(case, key):
                if budget not in known_budgets:
                    message = f"no budget is named {budget!r}{did_you_mean(budget, known_budgets)}"
                    problems.append(document.problem((*path, key, budget), message, at_key=True))
    if problems:
        document.refuse(problems)
    return [
        _judge(policy, case, job, Source(file, document.values["cases", index][0]))
        for index, (case, job) in enumerate(zip(content.cases, jobs, strict=True))
        if job is not None
    ]


def _job(case: PolicyCase, document: Document, index: int, problems: list[Problem]) -> Job | None:
    """The job of a case, with defaults for keys that do not matter."""
    offer = case.offer
    accelerators = f"{offer.accelerator}:{offer.count or 1}" if offer.accelerator else None
    resources = {"accelerators": accelerators} if accelerators else {"cpus": 1}
    job_fields = {"name": "case", "run": "true"} | (
        {} if {"resources", "model"} & case.job.keys() else {"resources": resources}
    )
    try:
        return parse_job(print_document(job_fields | case.job), file=document.file, now=case.at.replace(tzinfo=UTC))
    except InvalidInput as error:
        for problem in error.problems or [Problem(0, 0, "", error.message)]:
            key_path = [int(part) if part.isdigit() else part for part in re.split(r"[.\[\]]+", problem.key) if part]
            path = ("cases", index, "job", *key_path)
            is_misplaced = problem.unknown_key and problem.key in PolicyCase.model_fields
            message = "belongs beside `job:`, not in it" if is_misplaced else problem.message
            problems.append(document.problem(path, message, unknown_key=problem.unknown_key))
        return None


def _with_job_hint(problem: Problem) -> Problem:
    """The problem of an unknown key of a case, with the advice for a key of a job file."""
    match = re.fullmatch(r"cases\[\d+]\.(\w+)", problem.key)
    is_misplaced = problem.unknown_key and match is not None and match[1] in JobFile.model_fields
    return replace(problem, message="belongs under `job:`, not beside it") if is_misplaced else problem


def _wrong_jobs(document: Document) -> list[Problem]:
    """Problems in the jobs of cases that are wrong themselves. Times are not checked: they depend on the clock."""
    problems: list[Problem] = []
    cases = document.data.get("cases")
    for index, raw_case in enumerate(cases if isinstance(cases, list) else ()):
        if isinstance(raw_case, dict) and isinstance(raw_case.get("job"), dict):
            case = PolicyCase.model_construct(name="", expect=Answer.ALLOW, job=raw_case["job"])
            _job(case, document, index, problems)
    return [problem for problem in problems if not problem.key.endswith(".deadline")]


def _judge(policy: PolicySet, case: PolicyCase, job: Job, source: Source) -> CaseResult:
    action, facts = action_and_facts(policy, case, job)
    verdicts = tuple(policy.judge(action, facts))
    if job.array is not None and action.kind is ActionKind.LAUNCH:  # what runs are its tasks
        of_all = tuple(policy.judge(arrays.action_of_all(action, job.array, job.max_cost), facts))
        verdicts = arrays.verdicts_with_all(verdicts, of_all, policy.when)
    answer = max((verdict.answer for verdict in verdicts), key=arrays.STRICTNESS.index)
    objections = [verdict for verdict in verdicts if verdict.answer is not Answer.ALLOW]
    missing = [word for word in case.because if not any(word in (v.name, v.code, v.rule) for v in objections)]
    failure = ""
    if answer is not case.expect:
        summary = "; ".join(f"{verdict.message} ({verdict.source})" for verdict in objections) or "no rule objects"
        failure = f"expected {case.expect.value}, got {answer.value}: {summary}"
    elif missing:
        summary = ", ".join(f"{verdict.name} ({verdict.code})" for verdict in objections) or "none"
        failure = f"expected an objection by {', '.join(missing)}; got {summary}"
    return CaseResult(case.name, source, case.expect, answer, verdicts, failure)


def action_and_facts(policy: PolicySet, case: PolicyCase, job: Job) -> tuple[Action, Facts]:
    """The action and the facts that the case describes."""
    now = case.at.replace(tzinfo=UTC)
    offer = case.offer.offer(now, job)
    rate = (offer.price or Money.ZERO) * job.num_nodes
    remaining = max((job.max_duration or policy.defaults.max_duration) - case.ran_for, timedelta(0))
    cost = rate.for_duration(remaining)
    is_running = case.action is ActionKind.CONTINUE
    held = case.asks or (cost if job.max_cost is None else min(cost, job.max_cost))
    window = (now, now + remaining)
    age = case.submitted or case.ran_for or timedelta(0)
    action = Action(
        case.action,
        job,
        case.user,
        placement=Placement(offer, job.num_nodes, rate, cost, (), None, None, 1.0, 1.0, 0.0),
        hold=None if is_running else {offer.money: held},
        window=None if is_running else window,
        elapsed=case.ran_for,
        spent=case.cost_so_far or Money.ZERO,
        job_id=None if case.action is ActionKind.LAUNCH else "case",
        submitted_at=None if case.action is ActionKind.LAUNCH else now - age,
        attempts=case.attempts or 0,
        usage=tuple(sorted((Usage(now - b.ago, b.percent or 0.0) for b in case.busy), key=lambda item: item.at)),
    )
    budgets = {
        spec.id: tuple(
            BudgetUse(*period, Money.ZERO, Money.ZERO)  # the amounts are of the current period
            if n
            else BudgetUse(*period, case.spent.get(spec.rule, Money.ZERO), case.held.get(spec.rule, Money.ZERO))
            for n, period in enumerate(periods_touching(spec.period, spec.timezone, action.window or (now, now)))
        )
        for spec in policy.budgets(job, case.user)
    }
    in_hand = {name: CapacityInHand(item.gpus, item.used / 100, item.price) for name, item in case.in_hand.items()}
    work = RentedHours.of(action)
    rented = [replace(work, on_spot=kind == "spot", hours=hours) for kind, hours in case.rented_hours.items()]
    shares = policy.spot_shares(work, now, lambda since: rented)
    running = tuple(
        LiveAttempt(attempt.job or f"other-{n}", **attempt.model_dump(exclude={"job"}))
        for n, attempt in enumerate(case.running)
    )
    return action, Facts(now, running, budgets, in_hand=in_hand, spot_shares=shares)
