"""Every report is a query of the same ledger: for random histories of jobs, launches outside and purchases across
months, the total of each report is the ledger's, and so is the sum over each dimension. Months are those of one time
zone, which the policy or its budgets have, and every report names it.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from broker.app.billing.focus import export
from broker.app.billing.months import ReportPeriod
from broker.app.billing.report import DIMENSIONS, forecasts_report, spend, spend_report
from broker.app.billing.review import review
from broker.app.billing.showback import showback_report
from broker.app.billing.units import unit_metrics_report
from broker.app.outside import launches
from broker.app.wiring import Broker
from broker.core.events import events as ev
from broker.core.events.events import EventBody
from broker.core.events.outcomes import Cause, JobState
from broker.core.job.jobs import Job
from broker.core.job.placements import CostTerm, Placement, TransferKind
from broker.core.market.offers import Billing, CapacityType, MoneyKind
from broker.core.ports import BudgetSpec
from broker.core.purchases.purchase_events import Intended
from broker.core.purchases.purchases import start_purchase
from broker.core.purchases.quotes import CapacityQuote, PurchaseProduct, Undo
from broker.core.values.burns import Burn
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.budgets import period_containing
from broker.ledger.entries import Account, Entry, Movement, Tags, amount_before, faults
from broker.ledger.finops.focus.months import BillingMonth
from broker.ledger.finops.showback import SharingRules
from broker.procurement.money import ceiling_entries, payment_entries
from broker.reconciler.admission.records import attempt_key, hold_entries
from broker.reconciler.settlement.batch import post_due
from broker.reconciler.settlement.settlement import release
from broker.store.engine.fields import to_micros
from tests.actors import ANN, with_clock
from tests.past import offer

HOUR = timedelta(hours=1)
JULY = datetime(2026, 7, 1, tzinfo=UTC)
MONTHS = [datetime(2026, number, 1, tzinfo=UTC) for number in range(8, 12)]
NOW = datetime(2026, 10, 31, 23, 30, tzinfo=UTC)
TEAMS, PEOPLE, PLACES = ("nlp", "web", None), ("ann", "mo"), (("aws", "us-east-1"), ("gcp", "europe-west4"))


class History:
    """Random events of three months in a store."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self.broker, self.chance, self.seed = broker, random.Random(seed), seed
        for number in range(9):
            self.chance.choice((self.job, self.job, self.launch, self.purchase))(number)

    def at(self) -> datetime:
        """A time near the end of a month, in some zone, as often as not."""
        near = self.chance.choice(MONTHS[1:3]) + self.chance.randrange(-1800, 1200) * HOUR / 100
        return near if self.chance.random() < 0.5 else MONTHS[0] + self.chance.randrange(90 * 24) * HOUR

    def job(self, number: int) -> None:
        at, (provider, region), chance = self.at(), self.chance.choice(PLACES), self.chance
        one = replace(
            offer(at), provider=provider, region=region, zone=f"{region}a", count=chance.choice((1, 8)),
            capacity_type=chance.choice((CapacityType.ON_DEMAND, CapacityType.OWNED)),
            billing=Billing(minimum=chance.randrange(3) * HOUR),
        )  # fmt: skip
        if one.capacity_type is CapacityType.OWNED:
            one = replace(one, price=Money.ZERO, amortised=Money.usd("3.21"))
        terms = (
            CostTerm("disk", Money.usd("0.7")),
            CostTerm("egress", Money.usd("1.234567"), moves=TransferKind.DATA),
        )
        rate = one.price or Money.ZERO
        placement = Placement(one, chance.choice((1, 2)), rate, rate, terms, None, None, 1.0, 1.0, 0.0)
        id, ran = f"job-{self.seed}-{number}", chance.randrange(1, 500) * HOUR / 100
        job = Job(name=id, run="train", team=chance.choice(TEAMS), project=chance.choice(("llm", None)))
        tags = Tags(id, chance.choice(PEOPLE), job.team, job.project, job.workload.value)
        begun: list[tuple[int | None, EventBody]] = [
            (None, ev.Submitted(job=job, user=tags.user, max_duration_seconds=400 * 3600.0)),
            (1, ev.LaunchRequested(key=attempt_key(id, 1), engine="stage", placement=placement)),
            (1, ev.Launched(handle=id)),
            (1, ev.MachineUp(since=at)),
        ]
        ended: list[tuple[int | None, EventBody]] = [
            (1, ev.AttemptEnded(cause=Cause.COMPLETED)),
            (1, ev.MachineGone(gone_at=at + ran)),
        ]
        with self.broker.store.writing() as tx:
            view = tx.append(id, begun, at)
            tx.post(
                hold_entries(tags, {}, {placement.money: Burn.evenly(Money.usd(9), (at, at + HOUR))}, Movement.HOLD, 1)
            )
            post_due(tx, [view], at + ran / 3)
            if chance.random() < 0.2:
                return  # it goes on running
            view = tx.append(id, ended, at + ran)
            post_due(tx, [view], at + ran)
            tx.post(release(view, tx.sums([id])[id], at + ran))
            tx.append(id, [(None, ev.JobEnded(state=JobState.SUCCEEDED)), (None, ev.JobClosed())], at + ran)

    def launch(self, number: int) -> None:
        """One outside, ended or not; some ran longer than approved."""
        id, at, (provider, region) = f"outside:slurm-{self.seed}-{number}", self.at(), self.chance.choice(PLACES)
        tags = Tags(
            id, self.chance.choice(PEOPLE), self.chance.choice(TEAMS), attempt=1, provider=provider, region=region,
            capacity_type=CapacityType.ON_DEMAND, accelerator="H100", gpus=8,
        )  # fmt: skip
        burn = Burn(Money.usd(16), at, at + 4 * HOUR, Money.usd(4))
        with self.broker.store.writing() as tx:
            tx.post(hold_entries(tags, {}, {MoneyKind.CASH: burn}, Movement.HOLD, 1))
        if self.chance.random() < 0.8:
            launches.end_launch(self.broker, id, self.chance.choice((2, 4)) * HOUR, by=ANN)
            launches.spend_overrun(self.broker, id, at, self.chance.choice((3, 7)) * HOUR, by=ANN)

    def purchase(self, number: int) -> None:
        id, at, total = f"purchase-{self.seed}-{number}", self.at(), Money.usd(700)
        quote = CapacityQuote(
            product=PurchaseProduct.CAPACITY_BLOCK, provider="aws", offering="cb", region="us-east-1",
            instance_type="p5", accelerator="H100", count=8, machines=1, starts=at + HOUR, ends=at + 99 * HOUR,
            total=total, undo=Undo.NONE, quoted_at=at,
        )  # fmt: skip
        made = start_purchase(
            id, Intended(quote=quote, ceiling=total, binding="b", user="mo", team="nlp", approvals=0, questions=()), at
        )
        with self.broker.store.writing() as tx:
            tx.post(ceiling_entries(made, at))
            if self.chance.random() < 0.7:
                tx.post(payment_entries(made, Money.usd(650), at + HOUR))


BERLIN = "Europe/Berlin"
BUDGET = f"budgets: [{{name: b, amount: $900, period: month, timezone: {BERLIN}}}]"


@pytest.mark.parametrize(
    ("seed", "timezone", "policy"),
    [
        (0, "UTC", "defaults: {allow_stale_prices: true}"),
        (1, BERLIN, BUDGET),
        (2, "Pacific/Kiritimati", f"{BUDGET}\ndefaults: {{timezone: Pacific/Kiritimati}}"),
        pytest.param(3, "Asia/Kolkata", "defaults: {timezone: Asia/Kolkata}", marks=pytest.mark.system),
        pytest.param(4, "America/Los_Angeles", "defaults: {timezone: America/Los_Angeles}", marks=pytest.mark.system),
    ],
)
def test_every_report_has_the_total_of_the_ledger(
    new_broker: Callable[[], Broker], tmp_path: Path, seed: int, timezone: str, policy: str
) -> None:
    clock = ManualClock(NOW)
    broker = with_clock(new_broker(), clock)
    broker.store.activate_policy({"p.yaml": f"version: 1\n{policy}\n"}, by="test")
    History(broker, seed)
    with broker.store.reading() as look:
        entries = list(look.entries())
    assert faults(entries) == []
    agree(broker, entries, timezone)
    clock.advance(timedelta(days=90))
    spent = [one for one in entries if one.account is Account.SPENT]
    for name, kind in (("billed_cost", in_cash), ("effective_cost", by_attempt)):
        files = [
            export(broker, "1.4", f"{month:%Y-%m}", tmp_path / f"{name}-{month:%m}.csv") for month in (JULY, *MONTHS)
        ]
        exported = sum((getattr(one, name) for one in files), Money.ZERO)
        assert exported == sum((one.amount for one in spent if kind(one)), Money.ZERO), name


def in_cash(entry: Entry) -> bool:
    return entry.money is MoneyKind.CASH


def by_attempt(entry: Entry) -> bool:
    return entry.tags.attempt is not None


def agree(broker: Broker, entries: list[Entry], timezone: str) -> None:
    def ledger(since: datetime | None, until: datetime | None, kind: Callable[[Entry], bool] = lambda _: True) -> Money:
        edges = [(to_micros(since) if since else -(2**62)), (to_micros(until) if until else 2**62)]
        parts = Money.ZERO
        for one in entries:
            if one.account is Account.SPENT and kind(one):
                covers = to_micros(one.covers_from), to_micros(one.covers_to)
                before, by = (amount_before(one.amount.micros, *covers, edge) for edge in edges)
                parts += Money(by - before)
        return parts

    held = sum((one.amount for one in entries if one.account is Account.HELD), Money.ZERO)
    periods = [(None, None), (MONTHS[0], MONTHS[-1]), *pairwise(MONTHS), (MONTHS[1] - 5 * HOUR, MONTHS[2] + HOUR / 7)]
    for since, until in periods:
        for by in DIMENSIONS[:-1] if since is None else ("month,team", "provider,job", "instance_type", "month"):
            found = spend_report(broker, by, period=ReportPeriod(since, until)).total
            whole = found.cash + found.amortised + (found.bought_in_advance or Money.ZERO)
            assert whole == ledger(since, until), (by, since, until)
            assert found.bought + found.rented == found.cash + found.amortised
            assert found.held == (held if until is None or until > NOW else Money.ZERO), by
    for row in spend(broker, "team", since=MONTHS[1], until=MONTHS[2]):
        mine = [one for one in entries if by_attempt(one) and (one.tags.team or "(none)") == row.group]
        assert row.cash + row.amortised == ledger(MONTHS[1], MONTHS[2], mine.__contains__), row.group
    for number in (8, 9, 10):
        name = f"2026-{number:02d}"
        month = BillingMonth.parse(name, timezone)
        start, end, until = month.start, month.end, min(month.end, NOW)
        total = ledger(start, until)
        back = showback_report(broker, name, SharingRules())
        assert sum((row.cash + row.amortised for row in back.rows), back.bought_in_advance) == total
        report, figures = review(broker, name), unit_metrics_report(broker, name)
        reviewed = report.after
        assert reviewed.spent + reviewed.bought_in_advance == total
        assert sum((row.spent for row in report.teams), Money.ZERO) == reviewed.spent == figures.spent
        asked = ReportPeriod(period=name)
        of_month, of_billed = spend_report(broker, "provider", period=asked), asked.bounds(broker)
        assert of_month.total.cash + of_month.total.amortised == reviewed.spent
        assert of_billed == (start, end)
        by_month = {row.group: row for row in spend(broker, "month", since=MONTHS[0] - 50 * HOUR)}
        if name in by_month:
            assert by_month[name].cash + by_month[name].amortised == reviewed.spent
        hours = sum(row.gpu_hours for row in spend(broker, "provider", since=start, until=until))
        assert reviewed.gpu_hours == pytest.approx(hours, abs=1e-4)
        assert figures.gpu_hours == pytest.approx(hours, abs=1e-4)
        spec = BudgetSpec("b", "month", timezone, frozenset({MoneyKind.CASH}))
        with broker.store.reading() as look:
            assert look.spent(spec, *period_containing("month", timezone, start)) == ledger(start, end, in_cash)
        for budget in report.budgets if timezone == BERLIN else ():
            assert budget.spent == ledger(start, until, in_cash)
        said = (back, report, figures, of_month, forecasts_report(broker, name))
        assert {one.timezone for one in said} == {timezone}
