"""A company whose store has more of everything that pages list: to count what a page asks, and to look at pages."""

from dataclasses import replace
from datetime import timedelta

from broker.app.access import people, tokens
from broker.app.outside.documents import OverdueLaunch, record_overdue
from broker.core.access.people import TeamRole, TokenScope
from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved, Claimed, CommandStarted, MetricsReported, Restored
from broker.core.events.outcomes import Cause
from broker.core.events.wait_reasons import MoneyEnded
from broker.core.market.offers import CapacityType
from broker.core.policy.approvals import Question
from broker.core.purchases.purchase_events import Intended
from broker.core.purchases.purchases import start_purchase
from broker.core.purchases.quotes import CapacityQuote, PurchaseProduct, Undo
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.ledger.entries import Tags
from broker.market.suspicion import Suspicion
from broker.procurement.money import ceiling_entries
from tests.actors import ROOT
from tests.focus_ledger import spent
from tests.past import finished, offer, started
from tests.server.world import POLICY, Company, submitted

DAY, HALF_AN_HOUR = timedelta(days=1), timedelta(minutes=30)
SHOP = """\
  - {name: shop, purchases: {max_commitment: $9000, buyers: [mia, adam], approvers: [apple, tara, mia]}}
"""


def grow(world: Company, by: range) -> None:
    """One more of each for every number: running, waiting and ended jobs, attempts of ``world.mine``, requests, people,
    tokens, offers with other prices a day before, held capacity, purchases, and launches of other tools. The policy
    gets a version with three more budgets: each budget is a question of its own."""
    for number in by:
        _jobs(world, number)
        _prices(world, number)
        buy(world, f"purchase-{number:012d}")
        person = f"person-{number}"
        people.add(world.broker, person, by=ROOT)
        people.give_role(world.broker, person, TeamRole.MEMBER, "nlp", by=ROOT)
        for _ in range(2):
            tokens.create(world.broker, person, "laptop", [TokenScope.READ], DAY, by=ROOT)
    budgets = "".join(
        f"  - {{name: more-{one}, amount: ${one}00, period: month, scope: {{team: [nlp], project: [p-{one}]}}}}\n"
        for one in range(1, 4)
    )
    policy = POLICY.replace("guardrails:\n", f"{budgets}guardrails:\n") + SHOP
    world.broker.store.activate_policy({"test.yaml": policy}, by="adam")


def _jobs(world: Company, number: int) -> None:
    broker, now = world.broker, world.broker.clock.now()
    submitted(broker, f"more-{number}", "mia", "nlp")
    submitted(broker, f"asks-{number}", "mia", "nlp", most="6h")
    finished(broker.store, number, now - timedelta(days=2 + number % 20))
    started(broker.store, number, now - timedelta(hours=2))
    with broker.store.writing() as tx:
        view = tx.job(world.mine)
        assert view is not None
        last = view.attempts[-1]
        tx.append(view.id, [(last.number, ev.AttemptEnded(cause=Cause.LAUNCH_FAILED, evidence="no machine"))], now)
        again = ev.LaunchRequested(
            key=f"{view.id}-{last.number + 1}", engine="sandbox", placement=last.placement, why="the next best"
        )
        tx.append(view.id, [(last.number + 1, again)], now)


def _prices(world: Company, number: int) -> None:
    broker, now = world.broker, world.broker.clock.now()
    for ago, price in ((DAY, 11), (timedelta(0), 9 + number % 5)):
        offers = [
            replace(offer(now - ago), region=f"r-{one}", zone=f"r-{one}a", price=Money.usd(price))
            for one in range(number + 1)
        ]
        broker.store.record_poll("cloud", started=now - ago, finished=now - ago, offers=offers)
    broker.store.add_holding(
        Holding(HoldingKind.OWNED, "H100", 8, "our-site", f"hall-{number}", now - DAY, now + 365 * DAY), by="adam"
    )
    late = OverdueLaunch(
        id=f"outside:slurm-{number:024x}", tool="slurm", user="mia", team="nlp", machines="2 × H100 at slurm loop",
        since=now - DAY, until=now - DAY / 2, spent_usd=Money.usd(4), noted=now,
    )  # fmt: skip
    record_overdue(broker, late)


def buy(world: Company, id: str) -> None:
    """A purchase that two people must approve."""
    now = world.broker.clock.now()
    quote = CapacityQuote(
        product=PurchaseProduct.CAPACITY_BLOCK, provider="aws", offering="cb-1", region="us-east-1",
        instance_type="p5.48xlarge", accelerator="H100", count=8, machines=2, starts=now + DAY, ends=now + 3 * DAY,
        total=Money.usd(3900), undo=Undo.NONE, quoted_at=now,
    )  # fmt: skip
    event = Intended(
        quote=quote, ceiling=quote.total, binding="b1", user="mia", team="nlp", approvals=2,
        questions=(Question(rule="shop", approvers=("mia", "apple", "tara", "adam")),),
    )  # fmt: skip
    with world.broker.store.writing() as tx:
        tx.post(ceiling_entries(start_purchase(id, event, now), now))
        tx.append_purchase(id, event, now)


def reported(world: Company) -> None:
    """Figures that the program of ``world.mine`` has reported in the last hours, and a checkpoint."""
    broker = world.broker
    with broker.store.writing() as tx:
        view = tx.job(world.mine)
        assert view is not None
        number = view.attempts[-1].number
        for step in range(0, 2000, 50):
            told = MetricsReported(step=step, metrics={"loss": 4 * 0.999**step + 0.3, "tokens": 65_536.0 * step})
            tx.append(view.id, [(number, told)], broker.clock.now() - timedelta(seconds=5 * (2000 - step)))


def in_trouble(world: Company) -> dict[str, str]:
    """One of each that needs a person; the ids of the jobs by what is wrong with them. The only budget that is exceeded
    is the last of its file."""
    broker, now = world.broker, world.broker.clock.now()
    ago = now - timedelta(hours=3)
    jobs = {
        "slow": started(broker.store, 90, ago, of="slow"),
        "late": started(broker.store, 95, ago, of="late", deadline=now + timedelta(hours=1)),
        "paused": started(broker.store, 100, ago, of="paused"),
    }
    with broker.store.writing() as tx:
        slow = tx.job(jobs["slow"])
        assert slow is not None
        tx.append(slow.id, [(1, ev.AttemptEnded(cause=Cause.LAUNCH_FAILED, evidence="no machine"))], ago)
        again = ev.LaunchRequested(key=f"{slow.id}-2", engine="stage", placement=slow.attempts[-1].placement)
        tx.append(slow.id, [(2, again)], now - timedelta(hours=2))
        tx.append(jobs["late"], [(None, ev.DeadlineAtRisk())], now)
        tx.append(jobs["paused"], [(1, ev.AttemptEnded(cause=Cause.PAID_UNTIL)), (1, ev.MachineGone(gone_at=now))], now)
        tx.append(jobs["paused"], [(None, ev.Paused(reason=MoneyEnded(evidence="max_cost")))], now)
    for at, price in ((ago, "10"), (now, "0.01")):
        offers = [replace(offer(at), price=Money.usd(price))]
        broker.store.record_poll("cloud", started=at, finished=at, offers=offers, judge=Suspicion())
    tiny = "  - {name: tiny, amount: $1, period: quarter, scope: {team: [nlp]}, counts: [sandbox]}\n"
    active = broker.store.active_policy()
    assert active is not None
    budgets = active.files["test.yaml"].replace("guardrails:\n", f"{tiny}guardrails:\n")
    broker.store.activate_policy({"test.yaml": budgets}, by="adam")
    return jobs


def interrupted(world: Company) -> str:
    """A running job that was interrupted twice, saved a checkpoint each half an hour, and did 200 steps again; each of
    its first two attempts cost $20."""
    broker, now = world.broker, world.broker.clock.now()
    begin = now - timedelta(hours=9)
    id = started(broker.store, 7, begin, of="pretrain", on=CapacityType.SPOT, deadline=now + timedelta(hours=6))
    with broker.store.writing() as tx:
        for number, (ended, kind) in enumerate(((2, CapacityType.SPOT), (5, CapacityType.ON_DEMAND)), start=1):
            view = tx.job(id)
            assert view is not None
            first, end = view.attempts[-1], begin + timedelta(hours=ended)
            since = first.running_at or begin
            for part in range(1, int((end - since) / HALF_AN_HOUR) + 1):
                at, step = since + part * HALF_AN_HOUR, 400 * number + 100 * part
                tx.append(id, [(number, CheckpointSaved(checkpoint=f"c{number}-{part}", step=step, size=10**9))], at)
            lost = ev.AttemptEnded(cause=Cause.PREEMPTED, evidence="notice from the provider", step=1_000 * number)
            tx.append(id, [(number, lost), (number, ev.MachineGone(gone_at=end))], end)
            place = replace(offer(end), zone=f"there-{number}", capacity_type=kind)
            again = ev.LaunchRequested(
                key=f"{id}-{number + 1}", engine=first.engine, placement=replace(first.placement, offer=place)
            )
            tx.append(id, [(number + 1, again), (number + 1, ev.Launched(handle=again.key))], end + DAY / 200)
            up = ev.MachineUp(since=end + DAY / 150)
            tx.append(id, [(number + 1, up), (number + 1, Claimed(host="node"))], end + DAY / 150)
            restored = Restored(checkpoint=f"c{number}-1", step=800 * number)
            tx.append(id, [(number + 1, restored), (number + 1, CommandStarted())], end + DAY / 120)
            tags = Tags(id, "user-7", "team-2", attempt=number)
            tx.post(spent(number, "20", since, end, end, tags=tags))
    return id
