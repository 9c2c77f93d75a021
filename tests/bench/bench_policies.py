"""How long policies take to judge. Run: python -m tests.bench"""

from __future__ import annotations

from dataclasses import replace

from broker.core.policy import Facts
from tests.contracts.rule_contract import NOW, action, live, placement
from tests.policies.test_speed import policy_set, seconds


def main() -> None:
    facts = Facts(NOW, tuple(live(8, job_id=f"j-{n}") for n in range(200)), {})
    actions = [replace(action(), placement=placement(f"{20 + n / 1000:.3f}", region=f"us-{n % 9}")) for n in range(500)]
    for files, rules in ((2, 20), (20, 200)):
        policies = policy_set(files, rules)
        taken = seconds(lambda policies=policies: [policies.judge(act, facts) for act in actions])
        what = f"500 placements judged under {len(policies.rules)} rules, 200 jobs running"
        print(f"{what:<58} {taken:8.3f} s CPU")


if __name__ == "__main__":
    main()
