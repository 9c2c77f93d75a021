"""Limits of one kind for the same jobs: accepted where both take effect; and warnings about conditions."""

import pytest

from broker.core.errors import InvalidInput
from policies.loader import load


def told(*entries: str, section: str = "guardrails") -> list[str]:
    lines = [f"  - {{name: {name}, {entry}}}" for name, entry in zip("abc", entries, strict=False)]
    return list(load({"p.yaml": "\n".join(["version: 1", f"{section}:", *lines, ""])}).warnings)


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


def test_the_condition_of_a_budget_is_warned_of_because_it_divides_no_money() -> None:
    (warning,) = told("""amount: $5, period: day, when: 'job.environment == "night"'""", section="budgets")
    assert warning.startswith("p.yaml:3:40: decides which jobs this budget pays for, and divides no money")
    assert told("amount: $5, period: day, scope: {environment: night}", section="budgets") == []


def test_a_condition_on_what_may_be_absent_is_told_with_what_to_write() -> None:
    assert told("max_job_cost: $50, when: 'job.nodes > 1 && job.max_cost > 3.0'") == [
        "p.yaml:3:58: job.max_cost may be absent; the rule then applies as if the condition were met; to "
        "avoid that: has(job.max_cost) && job.nodes > 1 && job.max_cost > 3.0"
    ]
    assert told("amount: $5, period: day, when: job.max_hours > 3.0", section="budgets")[1:] == [
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
