"""What an approval covers: the facts that the rule looked at, the amount, the time and the GPUs; nothing worse."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.core.job.jobs import Data
from broker.core.market.offers import CapacityType, Interconnect, MoneyKind
from broker.core.policy.approvals import RequestedApproval, max_run_time, questions, total_of
from broker.core.policy.coverage import coverage_text, facts_in_words
from broker.core.policy.facts import Aspect, Fact, covers
from broker.core.policy.policy import (
    Action,
    ActionKind,
    Answer,
    BudgetUse,
    CapacityInHand,
    Facts,
    Grant,
    SpotShare,
    Verdict,
)
from broker.core.values.money import Money
from policies.conditions import _ASPECTS, ENVIRONMENT, JOB_FIELDS, LIMITED, TRANSIENT
from policies.loader import load
from policies.policyset import ActivePolicies
from policies.rules import RULES
from tests.contracts.rule_contract import NOW, action, job, live, placement

ASKS = "action: ask, approvers: [olga], expires: 2h"
HOUR = timedelta(hours=1)


def policy(entry: str, section: str = "guardrails") -> ActivePolicies:
    return load({"p.yaml": f"version: 1\n{section}:\n  - {{name: g, {entry}}}\n"})


def of(policies: ActivePolicies, act: Action, facts: Facts) -> Verdict:
    (verdict,) = (one for one in policies.judge(act, facts) if one.name == "g")
    return verdict


def approved(policies: ActivePolicies, act: Action, facts: Facts) -> Grant:
    """What olga's yes to an action comes to, as it is kept."""
    verdict = of(policies, act, facts)
    assert verdict.answer is Answer.ASK, verdict.message
    kept = tuple(type(one).model_validate_json(one.model_dump_json()) for one in questions([verdict]))
    gpus = act.placement.gpus if act.placement else 0
    asked = RequestedApproval(NOW, kept, total=total_of(act), gpus=gpus, lasts=max_run_time(act))
    (grant,) = asked.answered("olga", ["g"]).grants()
    return grant


def asks_again(entry: str, first: Action, second: Action, before: Facts, after: Facts, section: str) -> bool:
    policies = policy(entry, section)
    grant = approved(policies, first, before)
    return of(policies, second, replace(after, grants=(grant,))).answer is Answer.ASK


def held(used: float) -> Facts:
    """Eight H100 that are held, of which that share was used."""
    return Facts(NOW, in_hand={"H100": CapacityInHand(8, used, Money.usd(1))})


def place(provider: str = "aws", region: str = "us-east-1", price: str = "32", **more: Any) -> Action:
    emits = more.pop("kg", None)
    found = placement(price, provider=provider, region=region, **more)
    found = replace(found, kg_co2e_per_hour=emits, duration=HOUR) if emits else found
    return action(placement=found, hold={MoneyKind.CASH: Money.usd(90)})


def again(act: Action, **changes: Any) -> Action:
    return replace(act, kind=ActionKind.RE_PLACE, job_id="j-1", submitted_at=NOW, **changes)


SENSITIVE = job(data=Data(location="gcp/eu-1", sensitive=True))
SPENT = Facts(NOW, budgets={"g": (BudgetUse(NOW - 10 * HOUR, NOW + 500 * HOUR, Money.usd(50), Money.ZERO),)})
MORE_SPENT = Facts(NOW, budgets={"g": (BudgetUse(NOW - 10 * HOUR, NOW + 500 * HOUR, Money.usd(51), Money.ZERO),)})
NEXT = Facts(NOW, budgets={"g": (BudgetUse(NOW, NOW + 500 * HOUR, Money.usd(50), Money.ZERO),)})
BUSY, BUSIER = (Facts(NOW, live=tuple(live(8, job_id=f"o-{n}") for n in range(count))) for count in (2, 3))
RESERVED_BUSY, RESERVED_BUSIER = (
    Facts(NOW, live=tuple(live(8, job_id=f"o-{n}", capacity_type=CapacityType.RESERVED) for n in range(count)))
    for count in (2, 3)
)
RENTED, MORE_RENTED = (Facts(NOW, spot_shares={"g": SpotShare(100, total)}) for total in (300, 400))
PLAIN = Facts(NOW)

# For each rule that can ask: how it is written, what was approved, and the same with one thing changed to the worse.
WORSE: dict[str, tuple[str, Action, Facts, dict[str, tuple[Action, Facts]]]] = {
    "allowed_locations": (
        "allowed_locations: {providers: [owned]}", place("gcp", "eu-1"), PLAIN,
        {"provider": (again(place("aws", "eu-1")), PLAIN), "region": (again(place("gcp", "cn-1")), PLAIN)},
    ),
    "max_price_per_gpu_hour": (
        "max_price_per_gpu_hour: $4", place("gcp", "eu-1", "98"), PLAIN,  # $12.25 per GPU-hour
        {
            "price": (again(place("gcp", "eu-1", "960")), PLAIN),  # $120
            "a little dearer": (again(place("gcp", "eu-1", "98.01")), PLAIN),
            "place": (again(place("aws", "us-1", "98")), PLAIN),
            "accelerator": (again(place("gcp", "eu-1", "98", accelerator="B200")), PLAIN),
        },
    ),
    "capacity_types": (
        "capacity_types: [owned]", place(capacity_type=CapacityType.ON_DEMAND), PLAIN,
        {"kind": (again(place(capacity_type=CapacityType.SPOT)), PLAIN)},
    ),
    "accelerators": (
        "accelerators: [L4]", place(accelerator="H100"), PLAIN, {"kind": (again(place(accelerator="B200")), PLAIN)},
    ),
    "data_residency": (
        "data_residency: {run_in: 'owned/*'}", replace(place("gcp", "eu-1"), job=SENSITIVE), PLAIN,
        {
            "country": (again(replace(place("aws", "us-1"), job=SENSITIVE)), PLAIN),
            "data": (again(replace(place("gcp", "eu-1"), job=job(data=Data(location="aws/us-1")))), PLAIN),
        },
    ),
    "sensitive_data": (
        "sensitive_data: on_premises", replace(place("gcp", "eu-1"), job=SENSITIVE), PLAIN,
        {
            "country": (again(replace(place("gcp", "us-1"), job=SENSITIVE)), PLAIN),
            "kind": (again(replace(place("gcp", "eu-1", capacity_type=CapacityType.SPOT), job=SENSITIVE)), PLAIN),
        },
    ),
    "min_interconnect": (
        "min_interconnect: nvlink", place(interconnect=Interconnect.PCIE), PLAIN,
        {"link": (again(place(interconnect=Interconnect.NONE)), PLAIN), "unknown": (again(place()), PLAIN)},
    ),
    "reference_prices": (
        "reference_prices: forbidden", place(reference=True, source="book"), PLAIN,
        {
            "source": (again(place(reference=True, source="hearsay")), PLAIN),
            "older": (again(place(reference=True, source="book", as_of=NOW - HOUR)), PLAIN),
        },
    ),
    "max_price_age": (
        "max_price_age: 1h", place(as_of=NOW - 2 * HOUR), PLAIN, {"older": (again(place(as_of=NOW - 3 * HOUR)), PLAIN)},
    ),
    "max_concurrent_gpus": ("max_concurrent_gpus: 8", place(), BUSY, {"more": (again(place()), BUSIER)}),
    "max_concurrent_jobs": ("max_concurrent_jobs: 1", place(), BUSY, {"more": (again(place()), BUSIER)}),
    "reserved_quota": (
        "reserved_quota: {gpus: {nlp: 8}}", place(capacity_type=CapacityType.RESERVED), RESERVED_BUSY,
        {
            "more": (again(place(capacity_type=CapacityType.RESERVED)), RESERVED_BUSIER),
            "others": (again(place(capacity_type=CapacityType.RESERVED, accelerator="B200")), RESERVED_BUSY),
        },
    ),
    "spot": (
        "spot: {min_share: 50%}", place(), RENTED, {"less spot": (again(place()), MORE_RENTED)},
    ),
    "renting": (
        "renting: {utilisation: 70%, break_even: 90%}", place(), held(0.5),
        {"held ones used less": (again(place()), held(0.4)), "dearer": (again(place(price="33")), held(0.5))},
    ),
    "max_kg_co2e": (
        "max_kg_co2e: 1", place(kg=2.0), PLAIN, {"dirtier": (again(place(kg=2.1)), PLAIN)},
    ),
    "freeze": (
        "freeze: {from: 2026-11-01, to: 2026-11-30}", place(), PLAIN, {},
    ),
    "working_hours": ("working_hours: {from: '08:00', to: '09:00'}", place(), PLAIN, {}),
    "runaway": (
        "runaway: {max_attempts: 2}", again(place(), attempts=2), PLAIN, {"more": (again(place(), attempts=3), PLAIN)},
    ),
    "max_job_cost": (
        "max_job_cost: $5", place(), PLAIN, {"dearer": (again(place(), spent=Money.usd("0.01")), PLAIN)},
    ),
    "max_job_duration": (
        "max_job_duration: 5h", place(), PLAIN, {"longer": (again(place(), elapsed=timedelta(seconds=1)), PLAIN)},
    ),
    "approve_above": (
        "approve_above: {cost: $5, approvers: [olga]}", place(), PLAIN,
        {
            "dearer": (again(place(), spent=Money.usd("0.01")), PLAIN),
            "longer": (again(place(), elapsed=timedelta(seconds=1)), PLAIN),
            "more GPUs": (again(place(count=16)), PLAIN),
        },
    ),
    "budget": (
        "amount: $100, period: month, action: ask, approvers: [olga]", place(), SPENT,
        {"overdrawn further": (again(place()), MORE_SPENT), "another period": (again(place()), NEXT)},
    ),
}  # fmt: skip


def entry_of(kind: str) -> tuple[str, str]:
    """The entry that asks, and its section."""
    entry = WORSE[kind][0]
    if "approvers" not in entry:
        entry = f"{entry}, {ASKS}"
    return entry, "budgets" if kind == "budget" else "guardrails"


def test_every_rule_that_can_ask_is_here() -> None:
    # It is too late to ask where something was idle; anomalies and purchases are answered for themselves.
    lacking = set(RULES) - set(WORSE) - {"idle_shutdown", "purchases", "unusual_spending"}
    assert not lacking, f"add to WORSE what an approval must not cover: {', '.join(sorted(lacking))}"
    assert set(WORSE) <= set(RULES) - {"idle_shutdown", "purchases", "unusual_spending"}


@pytest.mark.parametrize("kind", WORSE)
def test_what_was_approved_is_not_asked_again(kind: str) -> None:
    entry, section = entry_of(kind)
    _, act, facts, _ = WORSE[kind]
    assert not asks_again(entry, act, again(act, attempts=act.attempts), facts, facts, section)


@pytest.mark.parametrize(("kind", "change"), [(kind, change) for kind in WORSE for change in WORSE[kind][3]])
def test_what_is_worse_is_asked_again(kind: str, change: str) -> None:
    entry, section = entry_of(kind)
    _, act, facts, changes = WORSE[kind]
    worse, seen = changes[change]
    assert asks_again(entry, act, worse, facts, seen, section)


def test_what_is_better_is_not_asked_again() -> None:
    entry, section = entry_of("max_price_per_gpu_hour")
    _, act, facts, _ = WORSE["max_price_per_gpu_hour"]
    assert not asks_again(entry, act, again(place("gcp", "eu-1", "90")), facts, facts, section)


def test_what_the_rule_does_not_look_at_may_change() -> None:
    entry, section = entry_of("max_job_cost")
    _, act, facts, _ = WORSE["max_job_cost"]
    assert not asks_again(entry, act, again(place("aws", "cn-9", "960")), facts, facts, section)


def test_another_freeze_is_another_question() -> None:
    first, second = (policy(f"freeze: {{from: 2026-11-01, to: 2026-11-{day}}}, {ASKS}") for day in ("28", "30"))
    grant = approved(first, place(), PLAIN)
    assert of(first, again(place()), Facts(NOW + HOUR, grants=(grant,))).answer is Answer.ALLOW
    assert of(second, again(place()), Facts(NOW + HOUR, grants=(grant,))).answer is Answer.ASK


def test_an_answer_may_take_its_time_where_the_age_of_a_job_is_asked_about() -> None:
    policies = policy(f"runaway: {{max_age: 1h}}, {ASKS}")
    grant = approved(policies, place(), PLAIN)  # ten hours from now, and two for the answer

    def later(hours: float) -> Answer:
        now = NOW + hours * HOUR
        moved = again(place(), window=(now, now + 10 * HOUR))
        return of(policies, moved, Facts(now, grants=(grant,))).answer

    assert [later(2), later(2.1)] == [Answer.ALLOW, Answer.ASK]
    runs = Action(ActionKind.CONTINUE, job(), "ann", placement(), job_id="j-1", submitted_at=NOW)
    assert of(policies, runs, Facts(NOW + 12 * HOUR, grants=(grant,))).answer is Answer.ALLOW
    assert of(policies, runs, Facts(NOW + 12.1 * HOUR, grants=(grant,))).answer is Answer.DENY


def test_what_was_started_with_an_approval_goes_on() -> None:
    """And what is elsewhere by now does not: moved there by a version that did not look, say."""
    for kind in ("allowed_locations", "max_price_per_gpu_hour", "sensitive_data", "min_interconnect", "capacity_types"):
        entry, section = entry_of(kind)
        _, act, facts, changes = WORSE[kind]
        policies = policy(entry, section)
        grant = approved(policies, act, facts)

        def runs(where: Action, policies: ActivePolicies = policies, grant: Grant = grant) -> Answer:
            going = replace(where, kind=ActionKind.CONTINUE, hold=None, window=None, job_id="j-1")
            return of(policies, going, Facts(NOW, grants=(grant,))).answer

        assert runs(act) is Answer.ALLOW, kind
        assert {runs(worse) for worse, _ in changes.values()} == {Answer.DENY}, kind


# --- conditions -----------------------------------------------------------------------------------------------------


def test_of_every_variable_it_is_known_what_an_approval_covers() -> None:
    names = {
        f"{group}.{name}" if isinstance(fields, dict) else group
        for group, fields in ENVIRONMENT.items()
        for name in (fields if isinstance(fields, dict) else [""])
    }
    groups = [set(_ASPECTS), JOB_FIELDS, LIMITED, TRANSIENT]
    assert set().union(*groups) == names
    assert sum(map(len, groups)) == len(names), "each is in one of them"


@pytest.mark.parametrize(
    ("when", "worse"),
    [
        ('offer.region != "us-1"', place(region="eu-9")),
        ('offer.provider != "x"', place("vast")),
        ('offer.zone != "x"', place(zone="b")),
        ('offer.instance_type != "x"', place(instance_type="other")),
        ('offer.accelerator != "x"', place(accelerator="B200")),
        ('offer.capacity_type != "x"', place(capacity_type=CapacityType.SPOT)),
        ('offer.money != "x"', place(money=MoneyKind.SANDBOX)),
        ('offer.source != "x"', place(source="hearsay")),
        ('offer.interconnect != "x"', place(interconnect=Interconnect.PCIE)),
        ("offer.price > 1.0", place(price="33")),
        ("offer.price_per_gpu > 1.0", place(price="33")),
        ("placement.rate > 1.0", place(price="33")),
        ("placement.expected_cost > 1.0", place(price="33")),
        ("offer.age_hours >= 0.0", place(as_of=NOW - HOUR)),
        ("offer.reference || true", place(reference=True)),
        ("has(offer.interruptions_per_hour) || true", place(interruption_rate=0.5)),
        ("placement.nodes > 0", replace(place(), placement=placement("16", nodes=2, count=4))),
        ("spend.attempts >= 0", again(place(), attempts=1)),
        ("job.sensitive || true", replace(place(), job=job(data=Data(sensitive=True)))),
        ('job.data_location != "x"', replace(place(), job=job(data=Data(location="aws/us-1")))),
        ("placement.finish > time.now || true", place(kg=1.0)),  # of which the time it takes is known
    ],
)
def test_what_a_condition_asks_about_is_covered_too(when: str, worse: Action) -> None:
    asks = policy(f"max_job_cost: $5, when: '{when}', {ASKS}")
    plain = policy(f"max_job_cost: $5, {ASKS}")
    grant = approved(asks, place(), PLAIN)
    facts = replace(PLAIN, grants=(grant,))
    assert of(asks, again(place()), facts).answer is Answer.ALLOW
    assert of(asks, worse, facts).answer is Answer.ASK
    assert of(plain, worse, facts).answer is Answer.ALLOW, "where nothing asks about it, it may change"


# --- what was kept before, what was given ahead, and the words for it ----------------------------------------------


def test_a_standing_grant_covers_every_place_and_price() -> None:
    ahead = Grant("olga", ("g",), Money.usd(900), standing=1, until=NOW + HOUR)
    for kind in ("allowed_locations", "max_price_per_gpu_hour", "sensitive_data"):
        entry, section = entry_of(kind)
        _, act, facts, changes = WORSE[kind]
        for each in (act, *(worse for worse, _ in changes.values())):
            assert of(policy(entry, section), each, replace(facts, grants=(ahead,))).answer is Answer.ALLOW


def test_an_unknown_figure_covers_itself_alone() -> None:
    unknown, known = (Fact(aspect=Aspect.PRICE, value=value) for value in (None, 5))
    assert covers([unknown], [unknown])
    assert not covers([unknown], [known])
    assert not covers([known], [unknown])
    assert not covers([], [known])


def test_what_a_yes_covers_is_said() -> None:
    text = f"max_price_per_gpu_hour: $4, {ASKS}"
    verdict = of(policy(text), place("gcp", "eu-1", "98"), PLAIN)
    asked = RequestedApproval(NOW, questions([verdict]), total=Money.usd(900), gpus=8, lasts=60 * HOUR)
    assert coverage_text(asked) == "gcp/eu-1, H100, at most $12.25 per GPU-hour, 8 GPUs, $900.00 in total, 60h"


def test_there_are_words_for_every_fact() -> None:
    told = facts_in_words(Fact(aspect=aspect, value=1 if aspect is not Aspect.ZONE else "a") for aspect in Aspect)
    assert len(told) == len(Aspect) - 1, "provider and region are one"
    assert all(told)
    unknown = facts_in_words(Fact(aspect=aspect, value=None) for aspect in Aspect if aspect is not Aspect.REGION)
    assert all(said.endswith("not known") for said in unknown)
    freeze = round(datetime(2026, 12, 1, tzinfo=UTC).timestamp() * 1_000_000)
    assert facts_in_words([Fact(aspect=Aspect.FREEZE, value=freeze)]) == ["the freeze until 2026-12-01 00:00 UTC"]
