"""The schema of policy files.

::

    version: 1
    policy: nlp-team                        # default: the file's name
    teams: {nlp: {members: [ann, bob]}}     # who may write `team: nlp` in a job file
    defaults: {max_duration: 24h, allow_reference_prices: false, cpu_jobs_on_gpus: false}
    priorities: {urgent: {preempts: true}}  # may take the places of running jobs of lower priority
    capacity: {order: [owned, reserved, spot, on_demand]}
    assumptions: {rent_below_hours_per_day: 5}       # defaults of `gpubroker advise`
    budgets:
      - {name: nlp-monthly, amount: "$2,000", period: month, timezone: Europe/Berlin, scope: {team: nlp}}
    guardrails:                             # each has a name and exactly one rule
      - {name: no-crazy-prices, max_price_per_gpu_hour: $4}
      - {name: nights-are-cheap, max_job_cost: $50, when: 'hour_in("Europe/Berlin") < 20'}

The guardrails' keys come from `policies.rules`: a new rule needs no change here.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Annotated, Any, Literal, cast

from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    StrictBool,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from broker.core.job.fields import WholeNumber
from broker.core.job.jobs import Priority
from broker.core.market.offers import CapacityType
from broker.core.validation import parse_each
from broker.core.values.units import PositiveDuration
from policies.conditions import variables
from policies.fields import (
    HoldOrRent,
    HoldQuantile,
    Limit,
    Name,
    NoticeRetention,
    Patterns,
    PolicyPart,
    PriceRetention,
    TimeZone,
    When,
)
from policies.rules import GUARDRAILS, RULES
from policies.rules.budget import BudgetTerms
from policies.scope import MayAsk, Per, Scope

VERSION = 1


class _OneOrSeveral:
    """In the JSON Schema: a scope, or a list of scopes."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        list_schema = handler(core) | {"minItems": 1}
        return {"anyOf": [list_schema["items"], list_schema]}


def _scopes(value: object) -> object:
    if value == [] or value == {} or (isinstance(value, list) and {} in value):
        raise ValueError("contains an empty scope; expected a team, project, workload, user or environment")
    return value if isinstance(value, list) else [value]


Scopes = Annotated[tuple[Scope, ...], BeforeValidator(_scopes), _OneOrSeveral()]
"""One scope or a list of scopes, each with at least one name."""


class Team(PolicyPart):
    """The members of a team: operating-system user names, or patterns."""

    members: Patterns


class Defaults(PolicyPart):
    """Defaults for jobs, and switches. With several files, the shortest ``max_duration`` applies; a switch is on if at
    least one file sets it and every file that mentions it says true.

    ``max_duration``: machine time of all attempts of a job. ``allow_reference_prices``: launch at list prices that are
    not live. ``allow_stale_prices``: launch at prices older than the provider's limit, for example during a long
    outage. ``cpu_jobs_on_gpus``: jobs without accelerators may use GPU machines. ``value_of_time``: USD that finishing
    an hour earlier is worth for a job that gives neither a deadline nor a value; the lowest of several files applies.
    ``end_orphans_after``: `gpubroker serve` ends machines and holds without a job once they reach this age; the longest
    of several files applies; by default they are only reported. ``max_unattended``: rented machines stop, checkpoint
    first, after this time without a broker; the shortest of the files and the job applies. ``keep_checkpoints``,
    ``keep_results``, ``keep_logs``: `gpubroker serve` and `gpubroker jobs prune` delete files of jobs that ended longer
    ago, except each job's newest checkpoint; ``keep_snapshots``: and the files that such jobs were submitted with, once
    no result or checkpoint of them is left. ``keep_prices``, ``keep_notices``: `gpubroker serve` deletes older price
    history and older delivered alerts. The longest of several files applies; by default all stay.
    ``hold_quantile``: the share of runs that the hold of a job with known work covers at its start, by the
    interruptions to be expected; 100% holds its whole time limit. By default 95% for a job without ``max_duration``,
    and 100% for others; the highest of several files applies. ``unknown_disk``: USD per GiB and month that a rented
    disk of unknown list price may cost, where that is less than the built-in upper bound; the highest of several files
    applies. ``timezone``: in which the months of reports begin, by default the only one besides UTC that budgets
    name, else UTC; the first of several files applies.
    """

    max_duration: PositiveDuration | None = None
    allow_reference_prices: StrictBool | None = None
    allow_stale_prices: StrictBool | None = None
    cpu_jobs_on_gpus: StrictBool | None = None
    value_of_time: Limit | None = None
    end_orphans_after: PositiveDuration | None = None
    max_unattended: PositiveDuration | None = None
    keep_checkpoints: PositiveDuration | None = None
    keep_results: PositiveDuration | None = None
    keep_logs: PositiveDuration | None = None
    keep_snapshots: PositiveDuration | None = None
    keep_prices: PriceRetention | None = None
    keep_notices: NoticeRetention | None = None
    hold_quantile: HoldQuantile | None = None
    unknown_disk: Limit | None = None
    timezone: TimeZone | None = None


class OrderException(PolicyPart):
    """Jobs in the ``scope`` (team, project, workload or environment) have their own ``order``."""

    scope: Scope
    order: tuple[CapacityType, ...]

    @field_validator("scope")
    @classmethod
    def _about_jobs(cls, scope: Scope) -> Scope:
        if scope.user or scope == Scope():
            raise ValueError("expected a team, project, workload or environment: a capacity order depends on the job")
        return scope

    @field_validator("order")
    @classmethod
    def _once_each(cls, order: tuple[CapacityType, ...]) -> tuple[CapacityType, ...]:
        return _checked_order(order)


class Moves(PolicyPart):
    """``overlap``: whether a job with a deadline, known work and checkpoints that moves from on-demand to spot may pay
    for both machines while the new one starts, instead of stopping first; not if one of several files says false.
    """

    overlap: StrictBool


class HoldingThresholds(HoldOrRent):
    """What `gpubroker capacity plan` and `propose` may propose to own or reserve. ``utilisation``: only GPUs that were
    needed for this share of the hours; ``horizon``: no longer term; ``break_even``: only what pays against renting from
    at most this share of the hours.
    """


class PriorityEntry(PolicyPart):
    """``preempts``: jobs of this priority may take the places of running jobs of lower priority on owned and reserved
    machines, if their wait costs more than the work that those repeat. ``min_runtime``: each of those has run so long;
    ``per_day``: and gives way at most so often in 24 hours. Of several files the longest and the lowest apply.
    """

    preempts: StrictBool
    min_runtime: PositiveDuration = timedelta(minutes=30)
    per_day: WholeNumber = Field(default=3, ge=1, le=1000)


class CapacityPreferences(PolicyPart):
    """``order``: capacity types in order of preference, regardless of cost; unnamed types follow by cost.
    ``exceptions``: scopes with another order; the first match applies. ``wait_for_paid``: how long a job may wait for
    owned or reserved machines that are expected to become free, instead of renting, if its deadline allows.
    ``hold``: what may be proposed to own or reserve.
    """

    order: tuple[CapacityType, ...] = ()
    exceptions: tuple[OrderException, ...] = ()
    wait_for_paid: PositiveDuration | None = None
    hold: HoldingThresholds | None = None

    @model_validator(mode="after")
    def _says_something(self) -> CapacityPreferences:
        if not any((self.order, self.exceptions, self.wait_for_paid, self.hold)):
            raise ValueError("is empty; expected `order`, `exceptions`, `wait_for_paid` or `hold`")
        return self

    @field_validator("order")
    @classmethod
    def _once_each(cls, order: tuple[CapacityType, ...]) -> tuple[CapacityType, ...]:
        return _checked_order(order)

    @field_validator("exceptions", mode="before")
    @classmethod
    def _some(cls, value: object) -> object:
        return _not_empty(value)


def _checked_order(order: tuple[CapacityType, ...]) -> tuple[CapacityType, ...]:
    if not order or len(set(order)) < len(order):
        raise ValueError(f"expected some of {', '.join(CapacityType)}, each once, first choice first")
    return order


class BudgetEntry(BudgetTerms):
    """A budget: name, scope, and amount. ``when``: the budget grants only requests that meet the condition. ``per``:
    each user, team or project in the scope has the amount.
    """

    name: Name
    scope: Scope = Field(default_factory=Scope)
    per: Per | None = None
    when: When | None = None


class GuardrailEntry(MayAsk):
    """A guardrail: name, scope, exactly one rule, and an optional CEL condition ``when``. ``action``: ``deny``,
    ``ask`` one of the ``approvers``, or ``warn``: it is judged and recorded, and stops nothing. Otherwise running jobs
    that violate the rule stop, unless approved. ``except``: one scope or several to which this rule does not apply;
    other rules do. ``per``: a limit of what runs at once applies to each user, team or project by itself.
    """

    name: Name
    scope: Scope = Field(default_factory=Scope)
    excepted: Scopes = Field(default=(), alias="except")
    per: Per | None = None
    when: When | None = None
    action: Literal["ask", "deny", "warn"] = "deny"

    @property
    def kind(self) -> str:
        return next(kind for kind in GUARDRAILS if getattr(self, kind) is not None)

    @property
    def rule(self) -> Any:
        """The rule's configuration."""
        return getattr(self, self.kind)

    @model_validator(mode="after")
    def _one_rule(self) -> GuardrailEntry:
        kinds = [kind for kind in GUARDRAILS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            count_text = f"has {len(kinds)} rules ({', '.join(kinds)})" if kinds else "has no rule"
            raise ValueError(f"{count_text}; expected exactly one of {', '.join(GUARDRAILS)}")
        rule = RULES[self.kind]
        if reason := {"ask": rule.never_asks, "warn": rule.never_warns}.get(self.action, ""):
            parse_each([("action", reason)], _refuse)
        if self.per and not rule.counts_per:
            parse_each([("per", f"{self.kind} is not a limit on concurrent use; delete the key")], _refuse)
        return self


def _refuse(_: str, reason: str) -> None:
    raise ValueError(reason)


class PolicyFile(PolicyPart):
    """A policy file, as it is written."""

    version: int
    policy: Name | None = None
    teams: dict[Name, Team] = Field(default_factory=dict)
    defaults: Defaults = Field(default_factory=Defaults)
    priorities: dict[Priority, PriorityEntry] = Field(default_factory=dict)
    capacity: CapacityPreferences | None = None
    moves: Moves | None = None
    assumptions: dict[str, Any] = Field(
        default_factory=dict,
        description="Defaults of `gpubroker advise`; `gpubroker advise assumptions` lists them.",
    )
    budgets: tuple[BudgetEntry, ...] = ()

    @property
    def entries(self) -> tuple[GuardrailEntry, ...]:
        return cast("tuple[GuardrailEntry, ...]", getattr(self, "guardrails", ()))

    @field_validator("version", mode="before")
    @classmethod
    def _version(cls, value: object) -> object:
        if type(value) is not int or value != VERSION:
            raise ValueError(f"expected version {VERSION}; got {value!r}")
        return value

    @field_validator("teams", "priorities", "budgets", "guardrails", "assumptions", mode="before", check_fields=False)
    @classmethod
    def _sections(cls, value: object) -> object:
        return _not_empty(value)


def _not_empty(value: object) -> object:
    if value in ([], {}):
        raise ValueError("is empty; add an entry, or delete the key")
    return value


@cache
def policy_file_model(kinds: frozenset[str] = frozenset(GUARDRAILS)) -> type[PolicyFile]:
    """The model of a whole file, with a key for every registered guardrail.

    ``kinds``: those that occur; the others are not imported, which saves time, and accept any value.
    """
    rules: dict[str, Any] = {kind: (RULES[kind].Config if kind in kinds else Any, None) for kind in GUARDRAILS}
    entry = create_model("Guardrail", __base__=GuardrailEntry, __doc__=GuardrailEntry.__doc__, **rules)
    return create_model("Policy", __base__=PolicyFile, __doc__=PolicyFile.__doc__, guardrails=(tuple[entry, ...], ()))


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of policy files, for editors."""
    schema = policy_file_model().model_json_schema()
    schema["$defs"]["Guardrail"]["oneOf"] = [{"required": [kind]} for kind in GUARDRAILS]
    for entry in ("Guardrail", "BudgetEntry"):
        schema["$defs"][entry]["properties"]["when"]["description"] = f"A condition in CEL over {variables()}."
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **cast("dict[str, Any]", _without_null(schema))}


def _without_null(schema: Any) -> Any:
    """Optional keys must not be null; pydantic's schema would allow it."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    cleaned = {key: _without_null(value) for key, value in schema.items() if (key, value) != ("default", None)}
    options = [option for option in cleaned.get("anyOf", []) if option != {"type": "null"}]
    if options and len(options) < len(cleaned["anyOf"]):
        del cleaned["anyOf"]
        cleaned |= options[0] if len(options) == 1 else {"anyOf": options}
    return cleaned
