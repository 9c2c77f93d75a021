"""A month: a proposal, two approvals, a block bought once, four jobs in it, those that still run leave it 35 minutes
before its end with their checkpoints and go on elsewhere, and a review of what it brought.

The purchase runs against AWS's fake through the real provider; machines and run folders are the rehearsal's.
"""

from dataclasses import replace
from datetime import timedelta

import pytest

from broker.app.capacity import proposal, purchases
from broker.app.capacity.plan import CapacityPlanList, StatedPrices, plan_accelerators
from broker.app.capacity.purchases import purchase_review
from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import ActionKind, Answer
from broker.core.purchases.purchases import PurchaseState
from broker.core.purchases.quotes import CapacityQuote, QuoteRequest
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags, faults
from broker.placement.planner import PlanInputs, make_plan
from broker.placement.pricing.conditions import Conditions
from broker.procurement.bought_offers import LEAVE_BEFORE, add_bought_offers, leave_at
from broker.reconciler.admission.records import hold_entries, launch_request
from broker.reconciler.controllers.continuation import CapacityEnd
from tests.actors import ANN, BOB, OLGA
from tests.procurement.conftest import REGION, TOTAL, Shop
from tests.reconciler.rehearsal import Stage

HOUR = timedelta(hours=1)
JOB = "name: {id}\nteam: nlp\nrun: train\nresources: {{accelerators: 'H100:8'}}\nwork: {hours}h on H100:8\n"


class MonthOfJobs(Stage):
    """The rehearsal's broker over the shop's store: bought machines, and the same on demand at $90 an hour."""

    def __init__(self, shop: Shop) -> None:
        super().__init__(shop.broker.store, shop.clock)
        leaving = CapacityEnd(self.store, lambda one: leave_at(one, self.store.purchases(), self.clock.now()))
        self.begin(self.place, self.enforce, leaving)

    def _market(self) -> PlanInputs:
        now = self.clock.now()
        on_demand = Offer(
            "aws", REGION, "use1-az9", "p5.48xlarge", "H100", 8, CapacityType.ON_DEMAND, Money.usd(90), now, "test",
            cpus=192, memory_gib=2048, availability=Availability.AVAILABLE, engine="stage",
        )  # fmt: skip
        with self.store.reading() as look:
            offers = add_bought_offers([on_demand], look.purchases(), now)
        offers = [replace(one, engine="stage", cpus=192, memory_gib=2048) for one in offers]
        return PlanInputs(offers, Conditions(engines={"stage": frozenset()}, sandbox=True), {})

    def start(self, id: str, hours: int) -> None:
        """A job of the team nlp, on one machine."""
        now = self.clock.now()
        job = parse_job(JOB.format(id=id, hours=hours), file="job.yaml", now=now)
        inputs = self._market()
        planned = make_plan(job, inputs.offers, now=now, submitted_at=now, conditions=inputs.conditions)
        submitted = ev.Submitted(
            job=job, user="ann", max_duration_seconds=4 * 86_400, work_seconds=hours * 3600,
            on_demand=ev.Baseline(pool="od", rate=Money.usd("90"), throughput=1.0),
        )  # fmt: skip
        window = (now, now + timedelta(days=4))
        burns = {kind: Burn.evenly(Money.usd(9000), window) for kind in (MoneyKind.CASH, MoneyKind.AMORTISED)}
        with self.store.writing() as tx:
            allowed = (Answer.ALLOW, self.policy.version, "")
            tx.record(Decision(now, ActionKind.LAUNCH, "ann", job.name, *allowed, job_id=id, attempt=1))
            tx.post(hold_entries(Tags(id, "ann", team="nlp"), {}, burns, Movement.HOLD, 1))
            tx.append(id, [(None, submitted), (1, launch_request(id, 1, planned.placements[0]))], now)
        self.look()
        self.mailbox.starts(f"{id}-1")
        self.look()

    def look(self, by: timedelta = timedelta(0), times: int = 1) -> None:
        for _ in range(times):
            self.clock.advance(by)
            for key, node in self.mailbox.nodes.items():
                if self.engine.machines[key].gone_at is None and node.exit is None:
                    self.mailbox.nodes[key] = replace(node, heartbeat_at=self.clock.now())
            self.reconciler.tick()

    def ends(self, key: str, cause: Cause) -> None:
        self.mailbox.exits(key, cause, 0)
        self.look(times=2)

    def job(self, id: str) -> JobView:
        with self.store.reading() as look:
            view = look.job(id)
        assert view is not None
        return view


DEMAND = [16] * 600 + [0] * 72


def planned_by(shop: Shop) -> CapacityPlanList:
    """Ann's team has used 16 GPUs most of the time."""
    stated = StatedPrices(on_demand={"H100": 11.25}, spot={"H100": 4.0})
    return plan_accelerators(shop.broker, {"H100": DEMAND}, "the last four weeks", stated)


@pytest.mark.system
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_month(shop: Shop) -> None:
    # proposed, with its arithmetic; bought from the proposal, once
    request = QuoteRequest(machines=2, accelerator="H100", count=8, length=timedelta(days=2), region=REGION)
    found = proposal.propose(shop.broker, planned_by(shop), "H100", DEMAND, request, ["aws"])
    (best,) = (line for line in found.lines if line.line == found.best)
    assert (round(best.break_even, 2), best.regret_usd) == (0.46, TOTAL)
    line = (found.id, 1, CapacityQuote.model_validate(best.order), purchases.Payer())
    asked, again = (proposal.buy_line(shop.broker, *line, by=ANN) for _ in range(2))
    assert asked.id == again.id
    for who in (BOB, OLGA):
        purchases.approve(shop.broker, asked.id, by=who)
    shop.advance(asked)
    shop.paid()
    held = shop.advance(asked)
    assert (held.state, len(shop.bought), shop.money(held)) == (PurchaseState.HELD, 1, (Money.ZERO, TOTAL))

    # four jobs: two end within the block, two still run when it ends
    fleet, quote = MonthOfJobs(shop), held.quote
    shop.clock.time = quote.starts
    for id in ("m-1", "m-2"):
        fleet.start(id, 20)
    fleet.look(HOUR, times=20)
    for id in ("m-1", "m-2"):
        fleet.ends(f"{id}-1", Cause.COMPLETED)
        assert fleet.job(id).state is JobState.SUCCEEDED
    for id in ("m-3", "m-4"):
        fleet.start(id, 40)
    in_block = [fleet.job(id).attempts[0].placement.offer for id in ("m-1", "m-2", "m-3", "m-4")]
    assert [(one.capacity_type, one.amortised) for one in in_block] == [
        (CapacityType.RESERVED, quote.per_machine_hour)
    ] * 4

    # they leave 35 minutes before its end, and not before
    leaves = quote.ends - LEAVE_BEFORE
    while fleet.clock.now() + 2 * HOUR < leaves:
        fleet.look(HOUR)
    shop.clock.time = leaves - timedelta(seconds=30)
    fleet.look()
    assert [fleet.job(id).attempts[0].stop_requested for id in ("m-3", "m-4")] == [None, None]
    shop.clock.time = leaves
    fleet.look(timedelta(minutes=1))
    assert [fleet.job(id).attempts[0].stop_requested for id in ("m-3", "m-4")] == [Cause.MOVED] * 2
    for id in ("m-3", "m-4"):
        fleet.mailbox.says(f"{id}-1", CheckpointSaved(checkpoint="c9", step=900, size=1))
        fleet.ends(f"{id}-1", Cause.MOVED)
    fleet.look(timedelta(minutes=1), times=3)
    for id in ("m-3", "m-4"):
        second = fleet.job(id).attempts[1]
        assert second.placement.offer.capacity_type is CapacityType.ON_DEMAND
        fleet.mailbox.starts(f"{id}-2", restored="c9")
        fleet.look()
        assert fleet.job(id).state is JobState.RUNNING
        assert fleet.job(id).attempts[1].resumed_from == "c9"
    fleet.look(HOUR, times=13)
    for id in ("m-3", "m-4"):
        fleet.ends(f"{id}-2", Cause.COMPLETED)
        assert fleet.job(id).state is JobState.SUCCEEDED

    # what it brought
    assert shop.advance(held).state is PurchaseState.ENDED
    brought = purchase_review(shop.broker, held.id, on_demand=11.25, spot=4.0)
    assert (brought.bought_gpu_hours, round(brought.used_gpu_hours)) == (768, 759)
    assert list(brought.by_team) == ["nlp"]
    assert (brought.cost_usd, brought.owner) == (TOTAL, "ann")
    assert brought.saved_usd is not None
    assert brought.saved_spot_usd is not None
    assert Money.usd(4500) < brought.saved_usd < Money.usd(4600)
    assert Money.usd(-1000) < brought.saved_spot_usd < Money.usd(-900), "spot would have been cheaper"
    with shop.broker.store.reading() as look:
        assert faults(look.entries()) == []
        assert all(not one.held for id in ("m-1", "m-2", "m-3", "m-4") for one in look.balance(id).values())
