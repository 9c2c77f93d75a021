"""A month of recorded decisions, for back-tests of policies."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from broker.app.policy.replay import PolicyReplay, replay
from broker.core.job.jobs import Job, Workload
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.policy.decisions import Decision, dump_inputs, inputs_hash
from broker.core.policy.policy import Action, ActionKind, Answer, Facts, Grant, LiveAttempt
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.budgets import budget_uses, share_within
from broker.ledger.entries import Account, Entry, Movement, Tags, held_burns, move
from broker.reconciler.admission.admission import strictest
from broker.reconciler.admission.records import hold_entries
from policies.loader import load
from policies.policyset import ActivePolicies

START = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@dataclass
class Month:
    """A broker's month in miniature: the gate, the ledger, and the record, kept by the test itself."""

    policy: ActivePolicies
    entries: list[Entry] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    running: list[tuple[datetime, LiveAttempt]] = field(default_factory=list)

    def submit(
        self,
        at: datetime,
        hold: str,
        *,
        cost: str | None = None,
        hours: float = 1,
        user: str = "ann",
        team: str = "nlp",
        placements: Sequence[Placement] = (),
        grants: tuple[Grant, ...] = (),
        **said: object,
    ) -> Answer:
        """A job that holds so much for so many hours and then comes to so much."""
        job = Job(name=f"job-{len(self.decisions)}", run="x", team=team, **said)
        window = (at, at + hours * HOUR)
        chosen, *others = placements or [placement(at, hold, hours)]
        burns = {MoneyKind.CASH: Burn.evenly(Money.usd(hold), window)}
        action = Action(ActionKind.LAUNCH, job, user, chosen, {MoneyKind.CASH: Money.usd(hold)}, window, burns=burns)
        facts = replace(self._facts(action, at), grants=grants)
        verdicts = tuple(self.policy.judge(action, facts))
        answer = strictest(verdicts)
        job_id = f"{job.name}-id" if answer is not Answer.DENY else None
        inputs = dump_inputs(action, facts, others, counts_live=self.policy.counts_live)
        self.decisions.append(
            Decision(
                at, ActionKind.LAUNCH, user, job.name, answer, self.policy.version,
                inputs_hash(inputs, self.policy.version), job_id, 1, chosen.offer.pool, verdicts, {"inputs": inputs},
            )
        )  # fmt: skip
        if job_id is not None:
            self._run(job_id, action, chosen, Money.usd(cost or hold))
        return answer

    def _facts(self, action: Action, now: datetime) -> Facts:
        assert action.window is not None
        uses = {}
        for budget in self.policy.budgets(action.job, action.user):
            mine = [e for e in self.entries if e.at <= now and (not budget.teams or e.tags.team in budget.teams)]
            spends = [e for e in mine if e.account is Account.SPENT]
            jobs = {e.tags.job_id for e in mine}
            holds = [burn for job in jobs for burn in held_burns(e for e in mine if e.tags.job_id == job).values()]

            def spent(start: datetime, end: datetime, spends: list[Entry] = spends) -> Money:
                return sum(
                    (share_within(e.amount, (e.covers_from, e.covers_to), (start, end)) for e in spends), Money.ZERO
                )

            uses[budget.id] = budget_uses(budget, action.window, now, spent, holds)
        live = tuple(one for until, one in self.running if now < until)
        return Facts(now, live, uses)

    def _run(self, job_id: str, action: Action, placed: Placement, cost: Money) -> None:
        assert action.window is not None
        assert action.hold is not None
        job, (at, ends) = action.job, action.window
        offer = placed.offer
        tags = Tags(
            job_id, action.user, job.team, job.project, job.workload.value, job.environment, 1, offer.provider,
            offer.region, offer.capacity_type, offer.accelerator, placed.gpus,
        )  # fmt: skip
        held = action.hold[MoneyKind.CASH]
        self.entries += hold_entries(tags, {}, action.burns, Movement.HOLD, 1)
        for what, amount, covers in (
            (Movement.SETTLE, cost, (at, ends)), (Movement.RELEASE, held - cost, (ends, ends)),
        ):  # fmt: skip
            self.entries += move(
                what, amount, movement_id=f"{job_id}/{what}", money=MoneyKind.CASH, at=ends, covers=covers, tags=tags
            )
        live = LiveAttempt(job_id, action.user, job.team, None, job.workload.value, None, placed.gpus, "H100", "aws",
                           MoneyKind.CASH, capacity_type=CapacityType.ON_DEMAND)  # fmt: skip
        self.running.append((ends, live))

    def again(self, policy: str | None = None) -> PolicyReplay:
        return replay(self.decisions, self.entries, load({"p.yaml": policy}) if policy else self.policy)


def placement(at: datetime, cost: str, hours: float = 1, *, provider: str = "aws", price: str = "8") -> Placement:
    offer = Offer(provider, "us-east-1", None, "p5", "H100", 1, CapacityType.ON_DEMAND, Money.usd(price), at, "test")
    return Placement(
        offer, 1, Money.usd(price), Money.usd(cost), (), hours * HOUR, at + hours * HOUR, 1.0, 1.0, 0.0
    )  # fmt: skip


def budget(amount: str, more: str = "") -> str:
    return f'version: 1\nbudgets: [{{name: monthly, amount: "{amount}", period: month}}]\n{more}'


def answers(found: PolicyReplay) -> list[str | None]:
    return [one.answer.value if one.answer else None for one in found.outcomes]


# --- the same policy ------------------------------------------------------------------------------------------------

RULES = """
guardrails:
  - {name: few, max_concurrent_jobs: 4}
  - {name: nlp-few, max_concurrent_gpus: 2, scope: {team: nlp}}
  - {name: prices, max_price_per_gpu_hour: $9}
  - {name: big, max_job_cost: $90, when: 'job.workload != "inference"'}
  - {name: dear, max_job_cost: $35, action: ask, approvers: [olga], scope: {team: vision}}
  - {name: long, approve_above: {duration: 8h, approvers: [olga], expires: 6h}, scope: {team: nlp, user: bob}}
  - {name: nights, capacity_types: owned, when: 'hour_in("Europe/Berlin") < 4', scope: {team: vision}}
"""
TEAMS = """
  - {name: nlp-weekly, amount: $300, period: week, timezone: Europe/Berlin, scope: {team: nlp}}
"""


def a_month(decisions: int = 520) -> Month:
    policy = 'version: 1\nbudgets:\n  - {name: monthly, amount: "$1,500", period: month}' + TEAMS + RULES
    month, dice = Month(load({"p.yaml": policy})), random.Random(7)
    for n in range(decisions):
        at = START + n * timedelta(minutes=80) + timedelta(seconds=dice.randrange(600))
        hold = dice.choice((5, 20, 40, 95))
        hours = dice.choice((1, 3, 9))
        price = dice.choice(("4", "8", "9.5"))
        month.submit(
            at,
            str(hold),
            cost=str(hold * dice.randrange(2, 10) / 10),
            hours=hours,
            team=dice.choice(("nlp", "vision")),
            user=dice.choice(("ann", "bob")),
            placements=[placement(at, str(hold), hours, price=price)],
            workload=dice.choice(list(Workload)),
            grants=(Grant("olga", ("dear", "long"), Money.usd(50)),) if dice.random() < 0.3 else (),
        )
    return month
