"""Rules of one kind in one file about some of the same jobs: both apply, and whoever checks the file is told."""

from __future__ import annotations

import pytest

from broker.core.errors import InvalidInput
from policies.loader import load


def told(*entries: str, section: str = "guardrails") -> list[str]:
    lines = [f"  - {{name: {name}, {entry}}}" for name, entry in zip("abc", entries, strict=False)]
    return list(load({"p.yaml": "\n".join(["version: 1", f"{section}:", *lines, ""])}).warnings)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("max_job_cost: $50, scope: {team: nlp}", "max_job_cost: $20, scope: {team: [nlp, vision]}",
         "p.yaml:4:41: b ($20) and a ($50) in p.yaml:3:41 both apply to team nlp: b is the stricter, so a "
             "never decides anything"),
        ("max_job_cost: $50, scope: {team: [nlp, audio]}", "max_job_cost: $20, scope: {team: [nlp, vision]}",
         "p.yaml:4:41: b ($20) and a ($50) in p.yaml:3:41 both apply to team nlp: b is the stricter"),
        ("max_job_cost: $50, scope: {team: '*'}", "max_job_cost: $20, scope: {team: nlp}",
         "p.yaml:4:41: b ($20) and a ($50) in p.yaml:3:41 both apply to team nlp: b is the stricter"),
        ("max_job_duration: 5h, scope: {team: nlp}", "max_job_duration: 4h",
         "p.yaml:4:5: b (4h) and a (5h) in p.yaml:3:44 both apply to team nlp: b is the stricter, so a never "
             "decides anything"),
        ("max_concurrent_gpus: 8, scope: {team: nlp}", "max_concurrent_gpus: 8, scope: {team: 'n*'}",
         "p.yaml:4:46: b (8) and a (8) in p.yaml:3:46 both apply to team nlp: b is the stricter, so a never "
             "decides anything"),
        ("max_price_per_gpu_hour: {H100: $4}, scope: {user: ann}",
         "max_price_per_gpu_hour: {H100: $3}, scope: {user: ['a*', bob], workload: batch}",
         "p.yaml:4:58: b and a in p.yaml:3:58 both apply to workload batch, user ann: b is the stricter"),
        ("spot: {use: forbidden}, scope: {team: nlp}", "spot: {use: with_checkpoints}, scope: {team: [nlp, x]}",
         "p.yaml:4:53: b and a in p.yaml:3:46 both apply to team nlp"),
    ],
)  # fmt: skip
def test_what_applies_twice_is_told_with_both_places(one: str, other: str, said: str) -> None:
    assert told(one, other) == [said]


def test_budgets_are_told_too() -> None:
    month = "period: month, scope: {team: %s}"
    assert told(f"amount: $500, {month % 'nlp'}", f"amount: $900, {month % '[nlp, vision]'}", section="budgets") == [
        "p.yaml:4:51: b ($900) and a ($500) in p.yaml:3:51 both apply to team nlp: a is the stricter"
    ]


HARD = "amount: $500, period: month, scope: {team: nlp}"


@pytest.mark.parametrize(
    ("section", "narrow", "wide"),
    [
        ("budgets", HARD, "amount: $100, period: month, action: ask, approvers: [olga]"),
        ("budgets", HARD, "amount: $100, period: month, action: stop"),
        ("budgets", f"{HARD}, top_up: false", "amount: $500, period: month"),
        ("budgets", f"{HARD}, action: stop, grace: 1m", "amount: $100, period: month, action: stop, grace: 3h"),
        ("budgets", f"{HARD}, timezone: Asia/Tokyo", "amount: $100, period: month"),
        ("budgets", f"{HARD}, alerts: [10%]", "amount: $100, period: month"),
        ("budgets", f"{HARD}, action: alert", "amount: $100, period: month, action: alert"),
        ("guardrails", "max_job_cost: $500, scope: {team: nlp}, action: ask, approvers: [ann]",
         "max_job_cost: $100, action: ask, approvers: [olga]"),
        ("guardrails", "max_job_cost: $500, scope: {team: nlp}, action: ask, approvers: [olga]",
         "max_job_cost: $100, action: ask, approvers: [olga], own_requests: true"),
    ],
)  # fmt: skip
def test_of_limits_on_other_terms_none_is_said_to_be_the_stricter(section: str, narrow: str, wide: str) -> None:
    """At $600, $100 for all that asks lets through what $500 that denies does not: who deleted that lost a cap."""
    for pair in ((narrow, wide), (wide, narrow)):
        (said,) = told(*pair, section=section)
        assert said.endswith("both apply to team nlp")


@pytest.mark.parametrize(
    ("section", "amount", "terms"),
    [
        ("budgets", "amount", "period: month, action: deny"),
        ("budgets", "amount", "period: month, action: ask, approvers: [olga], timezone: Asia/Tokyo, top_up: false"),
        ("guardrails", "max_job_cost", "action: ask, approvers: olga"),
    ],
)
def test_on_the_same_terms_the_one_that_never_decides_anything_is_named(section: str, amount: str, terms: str) -> None:
    (said,) = told(f"{amount}: $500, {terms}, scope: {{team: nlp}}", f"{amount}: $100, {terms}", section=section)
    assert said.endswith("both apply to team nlp: b is the stricter, so a never decides anything")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("max_job_cost: $50, scope: {team: nlp}", "max_job_cost: $20, scope: {team: vision}"),
        ("max_job_cost: $50, scope: {team: nlp}", "max_job_cost: $20, scope: {workload: batch}"),
        ("max_job_cost: $50", "max_job_cost: $20, scope: {team: nlp}"),
        ("max_job_cost: $50, action: ask, approvers: [olga]",
         "max_job_cost: $20, scope: {team: nlp}, action: ask, approvers: [ann]"),
        ("max_job_cost: $50, scope: {team: nlp}", "max_job_duration: 2h, scope: {team: '*'}"),
        ("max_job_cost: $50, scope: {team: nlp}",
         "max_job_cost: $20, scope: {team: '*'}, action: ask, approvers: [olga]"),
        ("max_job_cost: $50, scope: {team: nlp}", "max_job_cost: $20, scope: {team: '*'}, when: 'job.nodes > 1'"),
        ("max_price_per_gpu_hour: {H100: $4}, scope: {team: nlp}",
         "max_price_per_gpu_hour: {L4: $1}, scope: {team: '*'}"),
        ("approve_above: {cost: $50, approvers: a}, scope: {team: nlp}",
         "approve_above: {cost: $90, approvers: b}, scope: {team: '*'}"),
    ],
)  # fmt: skip
def test_what_applies_once_or_plainly_to_all_is_not(one: str, other: str) -> None:
    assert told(one, other) == []


def test_one_budget_may_ask_early_and_another_deny_late() -> None:
    budgets = ("amount: $100, period: month, action: ask, approvers: [olga]", "amount: $500, period: month")
    (said,) = told(*budgets, section="budgets")
    assert said.endswith("both apply to every job")
    with pytest.raises(InvalidInput) as caught:
        told("amount: $100, period: month", "amount: $500, period: month", section="budgets")
    assert "only the stricter one takes effect" in caught.value.problems[0].message


@pytest.mark.parametrize(
    ("section", "one", "other"),
    [
        ("budgets", "amount: $5, period: day", "amount: $9, period: day, counts: [cash, amortised]"),
        ("budgets", "amount: $9, period: day, timezone: Europe/Berlin", "amount: $5, period: day"),
        ("budgets", "amount: $9, period: day, alerts: [10%]", "amount: $5, period: day, alerts: [90%]"),
        ("budgets", "amount: $5, period: day, top_up: false", "amount: $9, period: day"),
        ("budgets", "amount: $5, period: day, action: ask, approvers: a",
         "amount: $9, period: day, action: ask, approvers: b"),
        ("guardrails", "max_job_cost: $5, action: ask, approvers: a", "max_job_cost: $9, action: ask, approvers: b"),
        ("guardrails", "max_price_per_gpu_hour: {H100: $5, L4: $1}", "max_price_per_gpu_hour: {H100: $4, A10: $1}"),
        ("guardrails", "min_interconnect: {at_least: nvlink, from_gpus: 4}",
         "min_interconnect: {at_least: pcie, from_gpus: 2}"),
        ("guardrails", "allowed_locations: {regions: {deny: [us-*]}}", "allowed_locations: {regions: {deny: [eu-*]}}"),
    ],
)  # fmt: skip
def test_limits_that_both_take_effect_are_accepted(section: str, one: str, other: str) -> None:
    told(one, other, section=section)
    load({"a.yaml": file(section, "a", one), "b.yaml": file(section, "b", other)})


@pytest.mark.parametrize(
    ("section", "one", "other"),
    [
        ("budgets", "amount: $5, period: day, counts: [amortised, cash]",
         "amount: $9, period: day, counts: [cash, amortised]"),
        ("budgets", "amount: $5, period: fixed, from: 2026-01-01, to: 2026-02-01",
         "amount: $9, period: fixed, from: 2026-01-01, to: 2026-02-01"),
        ("guardrails", "max_job_cost: $5, scope: {team: nlp}", "max_job_cost: $9, scope: {team: [nlp]}"),
    ],
)  # fmt: skip
def test_limits_that_contradict_are_refused_in_one_file_and_in_two(section: str, one: str, other: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        told(one, other, section=section)
    assert "in line 3, so only the stricter one takes effect" in caught.value.problems[0].message
    with pytest.raises(InvalidInput) as caught:
        load({"a.yaml": file(section, "a", one), "b.yaml": file(section, "b", other)})
    assert "in a.yaml:2, so only the stricter one takes effect" in caught.value.problems[0].message


def file(section: str, name: str, entry: str) -> str:
    return f"version: 1\n{section}: [{{name: {name}, {entry}}}]\n"


def test_each_rule_is_told_once_and_two_owners_may_each_have_theirs() -> None:
    three = [f"max_job_cost: ${dollars}, scope: {{team: [nlp, t{dollars}]}}" for dollars in (10, 20, 30)]
    assert [one.partition(": ")[0] for one in told(*three)] == ["p.yaml:4:41", "p.yaml:5:41"]
    hidden = ["max_job_cost: $50, scope: {team: nlp}", "max_job_cost: $60, scope: {team: vision}", "max_job_cost: $20"]
    assert [one.rpartition(", so ")[2] for one in told(*hidden)] == [f"{x} never decides anything" for x in "ab"]
    texts = {f"{n}.yaml": f"version: 1\nguardrails: [{{name: g{n}, {one}}}]" for n, one in enumerate(three)}
    assert list(load(texts).warnings) == []


def test_a_condition_on_what_may_be_absent_is_told_with_what_to_write() -> None:
    assert told("max_job_cost: $50, when: 'job.nodes > 1 && job.max_cost > 3.0'") == [
        "p.yaml:3:58: job.max_cost may be absent; the rule then applies as if the condition were met; to "
        "avoid that: has(job.max_cost) && job.nodes > 1 && job.max_cost > 3.0"
    ]
    assert told("amount: $5, period: day, when: job.max_hours > 3.0", section="budgets") == [
        "p.yaml:3:46: job.max_hours may be absent; the budget then grants nothing; to state that: "
        "has(job.max_hours) && job.max_hours > 3.0; to grant anyway: !has(job.max_hours) || job.max_hours > "
        "3.0"
    ]
    both = told("max_job_cost: $50, when: job.max_hours > 3.0 || job.data_gb > 9.0")
    assert [one.partition(" may")[0] for one in both] == ["p.yaml:3:40: job.max_hours", "p.yaml:3:63: job.data_gb"]
    assert all(
        one.endswith("has(job.max_hours) && has(job.data_gb) && (job.max_hours > 3.0 || job.data_gb > 9.0)")
        for one in both
    )
    assert told("max_job_cost: $50, when: 'has(job.max_cost) && job.max_cost > 3.0'") == []
