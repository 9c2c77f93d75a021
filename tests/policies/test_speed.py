"""Judging is quick enough to be done for every placement of every plan. Counted are calls of functions, as many on any
machine, however busy; on an idle one a thousand take about 0.2 ms. The limits are twice what is needed today."""

from dataclasses import replace

from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import BudgetUse, Facts
from broker.core.values.money import Money
from broker.ledger.budgets import periods_touching
from policies.loader import load
from policies.policyset import ActivePolicies
from tests.contracts.rule_contract import NOW, action, live, placement
from tests.steps import calls

GUARDRAILS = (
    "max_price_per_gpu_hour: {H100: $6, default: $3}, scope: {team: ['nl*', x%n], workload: [training, batch]}",
    "max_concurrent_gpus: 100000, scope: {team: [nlp, x%n]}",
    "allowed_locations: {providers: [aws, gcp, 'lam*'], regions: {deny: ['cn-*', 'ap-*']}}, scope: {user: [ann, x%n]}",
    "max_price_per_gpu_hour: $5, scope: {user: [ann, bob, x%n]}",
)


def policy_set(files: int, rules: int, when: str = "") -> ActivePolicies:
    """So many files with so many rules in all, of every kind; ``when``: a condition for each guardrail."""
    also = f', when: "{when}"' if when else ""

    def text(file: int) -> str:
        budget = f"{{name: b{file}, amount: $100000, period: month, scope: {{user: [ann, x{file}]}}}}"
        lines = ["version: 1", f"budgets: [{budget}]", "guardrails:"]
        for n in range(rules // files - 1):
            # A scope of its own for each, as two rules may not be about the same jobs.
            rule = GUARDRAILS[n % len(GUARDRAILS)].replace("%n", f"{file}-{n}")
            lines.append(f"- {{name: g{file}-{n}, {rule}{also}}}")
        return "\n".join(lines)

    return load({f"{file}.yaml": text(file) for file in range(files)})


def test_one_submission_under_200_rules_takes_few_steps() -> None:
    policies = policy_set(20, 200)
    act = action(hold={MoneyKind.CASH: Money.usd(100)})
    (period,) = periods_touching("month", "UTC", (NOW, NOW))
    uses = {spec.id: (BudgetUse(*period, Money.ZERO, Money.ZERO),) for spec in policies.budgets(act.job, "ann")}
    facts = Facts(NOW, tuple(live(8, job_id=f"j-{n}") for n in range(200)), uses)
    assert len(policies.rules) == 200

    assert calls(lambda: policies.judge(act, facts)) < 6_000


def test_one_submission_under_200_rules_with_conditions_takes_few_steps() -> None:
    policies = policy_set(20, 200, "job.workload == 'training' && offer.price > 1.0 && hour_in('Europe/Berlin') < 25")
    act = action(hold={MoneyKind.CASH: Money.usd(100)})
    facts = Facts(NOW, tuple(live(8, job_id=f"j-{n}") for n in range(200)))
    assert {v.code for v in policies.judge(act, facts)} >= {"within_limit", "allowed"}

    assert calls(lambda: policies.judge(act, facts)) < 7_000


def test_500_placements_under_20_rules_take_few_steps() -> None:
    policies = policy_set(2, 20)
    facts = Facts(NOW, tuple(live(8, job_id=f"j-{n}") for n in range(200)))
    actions = [replace(action(), placement=placement(f"{20 + n / 1000:.3f}", region=f"us-{n % 9}")) for n in range(500)]

    assert calls(lambda: [policies.judge(act, facts) for act in actions]) < 130_000
