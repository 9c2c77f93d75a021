"""The company that the load is made by: its policy, its people, and its past."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from broker.app.access import people, tokens
from broker.app.wiring import Broker
from broker.core.access.people import TeamRole
from broker.core.access.permissions import TokenScope
from broker.core.values.money import Money
from tests.actors import ROOT
from tests.past import analyse, fill

PER_JOB = 8  # entries
PAGES = ("/", "/jobs", "/queue", "/approvals", "/budgets", "/offers", "/reports")
BUDGET = Money.usd(1_000)
POLICY = """\
version: 1
policy: load
budgets:
  - {name: submitters, amount: "$1,000", period: month, scope: {team: [nlp]}, counts: [sandbox]}
  - {name: all, amount: "$1,000,000,000", period: month}
guardrails:
  - {name: waits, approve_above: {cost: $0.01, approvers: [adam], expires: 24h}}
"""
JOB = """\
name: load
team: nlp
resources: {accelerators: "L4:1"}
constraints: {providers: [sandbox]}
run: "true"
work: 30m
max_duration: 2h
"""
_TERM = timedelta(days=1)


def filled(broker: Broker, entries: int) -> int:
    """Put the policy in force and a past of two months into the store; returns the number of its jobs."""
    broker.store.activate_policy({"load.yaml": POLICY}, by="load")
    jobs = max(entries // PER_JOB, 20)
    fill(broker.store, datetime.now(UTC), closed=jobs, running=0, days=60)
    analyse(broker.store)
    return jobs


def hired(broker: Broker, viewers: int, submitters: int) -> tuple[list[str], list[str]]:
    """The tokens of viewers, in five teams, and of submitters."""
    people.add(broker, "adam", by=ROOT, administrator=True)
    looks, sends = [], []
    for number in range(viewers):
        people.add(broker, f"viewer-{number}", by=ROOT)
        people.give_role(broker, f"viewer-{number}", TeamRole.VIEWER, f"team-{number % 5}", by=ROOT)
        looks.append(tokens.create(broker, f"viewer-{number}", "", [TokenScope.READ], _TERM, by=ROOT).text)
    for number in range(submitters):
        people.add(broker, f"sender-{number}", by=ROOT)
        people.give_role(broker, f"sender-{number}", TeamRole.MEMBER, "nlp", by=ROOT)
        scopes = [TokenScope.READ, TokenScope.JOBS]
        sends.append(tokens.create(broker, f"sender-{number}", "", scopes, _TERM, by=ROOT).text)
    return looks, sends
