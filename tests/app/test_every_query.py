"""Every query of the store, one by one: none reads a table that grows with history from end to end.

`test_query_plans` shows that of the use cases. Here is each query that none of them asks.
"""

import inspect
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core.access.api_tokens import ApiToken, AuditRecord
from broker.core.access.sessions import PageSession
from broker.core.market.capacity import Charge
from broker.core.market.offers import OfferQuery
from broker.core.market.watches import Trigger, Watch
from broker.core.notices import Notice
from broker.core.ports import BudgetSpec
from broker.core.values.money import Money
from broker.ledger.finops.focus.months import BillingMonth
from broker.store.access.access import AccessWriter
from broker.store.jobs.job_rows import JobListFilter
from broker.store.jobs.reader import StoreReader
from broker.store.ledger.charges import Charges, ChargeScope
from broker.store.ledger.spending import SpendingPeriod
from broker.store.market_history import MarketHistory
from broker.store.outbox import Outbox
from tests.app.test_query_plans import (
    NOW,
    QuerySite,
    new_site,
    recorded,
    scans_on_postgresql,
    scans_on_sqlite,
)
from tests.past import offer

__all__ = ["new_site"]  # the fixture of the other module
HOUR = timedelta(hours=1)
SINCE = NOW - HOUR
BUDGET = BudgetSpec("team", "quarter", "UTC", frozenset({"cash"}), teams=("team-1",))


Query = Callable[[QuerySite], object]


def look(ask: Callable[[StoreReader, str], object]) -> Query:
    """Ask a question about the first job that runs, and read the whole answer."""

    def use(site: QuerySite) -> None:
        with site.broker.store.reading() as reading:
            found = ask(reading, site.running[0])
            if inspect.isgenerator(found):
                list(found)

    return use


def market(ask: Callable[[MarketHistory], object]) -> Query:
    return lambda site: ask(site.broker.store.market)


def access(ask: Callable[[AccessWriter], object]) -> Query:
    """Ask a question about people, or change something about one, in a transaction."""

    def use(site: QuerySite) -> None:
        with site.broker.store.access.writing() as tx:
            ask(tx)

    return use


def outbox(ask: Callable[[Outbox], object]) -> Query:
    return lambda site: ask(site.broker.store.outbox)


def charges(ask: Callable[[Charges], object]) -> Query:
    return lambda site: ask(site.broker.store.charges)


def send_with(box: Outbox) -> None:
    """Claim what goes to the same target."""
    (first,) = box.newest(1, failed=False)
    box.claim_with(replace(first, notice=replace(first.notice, thread="one")), NOW, HOUR)


def watched(site: QuerySite) -> None:
    """A watch, from its start to its end."""
    watches, watch = site.broker.store.watches, Watch("w", Trigger.STALE, NOW, "ann", age=HOUR)
    assert watches.add(watch)
    ((_, before),) = watches.all()
    after, notice = replace(before, number=1), Notice("watch/w/1", "", "")
    assert watches.move(watch, before, after, notice=notice, targets=["ops"], at=NOW)
    assert watches.remove("w")


def marked(site: QuerySite) -> None:
    """A mark of a budget, passed and told of."""
    marks, notice = site.broker.store.budget_marks, Notice("budget/b-1/now", "", "")
    assert marks.passed("b-1", NOW, Money.usd("1"), {"80%": notice}, (), {"80%": ["ops"]}, NOW)


TOKEN = ApiToken("new", "user-1", "mine", frozenset(), "", NOW, "user-1", NOW + HOUR)
SESSION = PageSession("new", "user-1", "new", NOW, NOW, NOW + HOUR)
CHARGE = Charge("cloud", SINCE, NOW, Money.usd("1"), "new-1")


QUERIES: dict[str, Query] = {
    "StoreReading.anomaly_answers": look(lambda r, _: r.anomaly_answers()),
    "StoreReading.billed_in": look(lambda r, _: r.billed_in(BillingMonth.of(NOW - timedelta(days=99)))),
    "StoreReading.bought_in_advance": look(lambda r, _: r.bought_in_advance(SpendingPeriod(SINCE, NOW, NOW))),
    "StoreReading.held_as_of": look(lambda r, _: r.held_as_of(SINCE)),
    "StoreReading.jobs_spent_on_own": look(lambda r, _: r.jobs_spent_on_own("team-1", SINCE, NOW)),
    "StoreReading.last_reports": look(lambda r, job: r.last_reports([job])),
    "StoreReading.machine_hours": look(lambda r, job: r.machine_hours([job])),
    "StoreReading.plans_and_ends": look(lambda r, job: r.plans_and_ends([job])),
    "StoreReading.spent_by_jobs": look(lambda r, job: r.spent_by_jobs([job], SINCE, NOW)),
    "StoreReading.statement": look(lambda r, _: r.statement("2026-01")),
    "StoreReading.statements": look(lambda r, _: r.statements()),
    "StoreReading.succeeded_jobs": look(lambda r, _: r.succeeded_jobs("team-1", SINCE, NOW, 10)),
    "StoreReading.balance": look(lambda r, job: r.balance(job)),
    "StoreReading.entries": look(lambda r, job: r.entries(job)),
    "StoreReading.entries_of": look(lambda r, job: r.entries_of([job])),
    "StoreReading.count_offers": look(lambda r, _: r.count_offers()),
    "StoreReading.holds_behind": look(lambda r, _: r.holds_behind(BUDGET, "a", SINCE, NOW)),
    "StoreReading.held_under": look(lambda r, _: r.held_under("launch-")),
    "StoreReading.in_hand": look(lambda r, _: r.in_hand(NOW)),
    "StoreReading.rented_hours": look(lambda r, _: r.rented_hours(SINCE, NOW)),
    "StoreReading.job_page": look(
        lambda r, _: (
            r.job_page(JobListFilter(teams=["team-3"]), after=None, limit=20),
            r.job_page(JobListFilter(states=("queued", "running"), visible=["team-3"]), after=None, limit=20),
        )
    ),
    "StoreReading.judged_by": look(lambda r, job: r.judged_by(job)),
    "StoreReading.last_judged": look(lambda r, job: r.last_judged(job, 1)),
    "StoreReading.names_in_market": look(lambda r, _: (r.names_in_market("provider"), r.names_in_market("region"))),
    "StoreReading.open_tasks": look(lambda r, job: r.open_tasks(job)),
    "StoreReading.plan_stamp": look(lambda r, _: r.plan_stamp()),
    "StoreReading.posted": look(lambda r, job: r.posted(job, 1)),
    "StoreReading.price_series": look(lambda r, _: r.price_series(offer(NOW), SINCE, NOW)),
    "StoreReading.purchase": look(lambda r, _: r.purchase("nothing")),
    "StoreReading.spent_on_own": look(lambda r, _: r.spent_on_own(BUDGET, SINCE, NOW)),
    "StoreReading.spent_until": look(lambda r, _: r.spent_until(BUDGET)),
    "StoreReading.names_with_money": look(lambda r, _: r.names_with_money("user")),
    "StoreReading.standing_share": look(lambda r, job: r.standing_share(1, job)),
    "StoreReading.task_counts": look(lambda r, job: r.task_counts(job)),
    "StoreReading.task_money": look(lambda r, job: (r.task_money(job), r.task_money(job, closed=False))),
    "StoreReading.tasks_of": look(lambda r, job: r.tasks_of(job)),
    "StoreReading.trees_since": look(lambda r, _: r.trees_since("snapshots-1", NOW)),
    "StoreReading.work_on_held": look(lambda r, _: r.work_on_held(SINCE)),
    "MarketHistory.availability_series": market(lambda m: m.availability_series(offer(NOW), SINCE, NOW)),
    "MarketHistory.kept_answers": market(lambda m: m.kept_answers("cloud", NOW)),
    "MarketHistory.freshness": market(lambda m: m.freshness(NOW)),
    "MarketHistory.offers_at": market(lambda m: m.offers_at(SINCE)),
    "MarketHistory.poll_runs": market(lambda m: m.poll_runs("cloud", limit=10)),
    "MarketHistory.price_series": market(lambda m: m.price_series(offer(NOW), SINCE, NOW)),
    "MarketHistory.price_series_of": market(lambda m: m.price_series_of([offer(NOW)], SINCE, NOW)),
    "MarketHistory.series": market(lambda m: m.series()),
    "MarketHistory.signal_series": market(lambda m: m.signal_series(offer(NOW), SINCE, NOW)),
    "Store.active_policy": lambda site: site.broker.store.active_policy(),
    "Store.policy_history": lambda site: site.broker.store.policy_history(),
    "Store.holdings": lambda site: site.broker.store.holdings(),
    "Store.purchases": lambda site: site.broker.store.purchases(),
    "Store.offers": lambda site: site.broker.store.offers(),
    "Store.count_offers": lambda site: site.broker.store.count_offers(),
    "Outbox.add": outbox(lambda o: o.add(Notice("sweep/one", "", ""), ["ops"], NOW)),
    "Outbox.claim": outbox(lambda o: o.claim(["ops"], NOW, HOUR)),
    "Outbox.claim_with": outbox(send_with),
    "Outbox.retry": outbox(lambda o: o.retry(NOW, ["ops"])),
    "Outbox.mark_delivered": outbox(lambda o: o.mark_delivered(o.newest(1, failed=False)[0], NOW)),
    "Outbox.mark_failed": outbox(lambda o: o.mark_failed(o.newest(1, failed=False)[0], "answered 503", NOW)),
    "Outbox.newest": outbox(
        lambda o: (
            o.newest(20, failed=False),
            o.newest(20, failed=True),
            o.newest(20, failed=True, targets=["mail"]),
        )
    ),
    "Outbox.prune": outbox(lambda o: o.prune(NOW - timedelta(minutes=500))),
    "Outbox.of": outbox(lambda o: o.of(["budget/b-2/2", "watch/w-1/1"])),
    "Outbox.under": outbox(lambda o: o.under("budget/b-2/22")),
    "Charges.record": charges(lambda c: c.record([CHARGE], source="api", at=NOW, whole=[ChargeScope("cloud", SINCE)])),
    "Charges.sources": charges(lambda c: c.sources("nobody")),
    "Watches.add": watched,
    "Watches.all": watched,
    "Watches.move": watched,
    "Watches.remove": watched,
    "BudgetMarks.passed": marked,
    "BudgetMarks.since": lambda site: site.broker.store.budget_marks.since("b-1", SINCE, Money.usd("1")),
    "AccessReading.audit": access(
        lambda a: (
            a.audit(limit=20),
            a.audit(limit=20, person="user-1"),
            a.audit(limit=20, subject="user-1"),
            a.audit(limit=20, person="user-1", subject="user-1"),
        )
    ),
    "AccessReading.person": access(lambda a: a.person("user-1")),
    "AccessReading.token": access(lambda a: a.token("token-1")),
    "AccessReading.token_and_owner": access(lambda a: a.token_and_owner("token-1")),
    "AccessReading.session_and_owner": access(lambda a: a.session_and_owner("session-1")),
    "AccessReading.tokens": access(lambda a: a.tokens("user-1")),
    "AccessReading.self_given_tokens": access(lambda a: a.self_given_tokens("user-1")),
    "AccessReading.request": access(lambda a: a.request("user-1", "key-1")),
    "AccessReading.session": access(lambda a: a.session("session-1")),
    "AccessWriting.add_token": access(lambda a: a.add_token(TOKEN)),
    "AccessWriting.token_used": access(lambda a: a.record_token_use("token-1", NOW)),
    "AccessWriting.revoke_token": access(lambda a: a.revoke_token(TOKEN, by="ann", at=NOW)),
    "AccessWriting.begin_request": access(lambda a: a.begin_request("user-1", "new", "", NOW)),
    "AccessWriting.finish_request": access(lambda a: a.finish_request("user-1", "new", 200, "")),
    "AccessWriting.forget_request": access(lambda a: a.forget_request("user-1", "new")),
    "AccessWriting.begin_session": access(lambda a: a.begin_session(SESSION)),
    "AccessWriting.session_seen": access(lambda a: a.record_session_use("session-1", NOW)),
    "AccessWriting.end_session": access(lambda a: a.end_session("session-1")),
    "AccessWriting.end_sessions": access(lambda a: a.end_sessions("user-1")),
    "AccessWriting.log": access(lambda a: a.log(AuditRecord(NOW, "ann", "cli", "person.add", "user-1"))),
    "Store.rejected_in_sql": lambda site: site.broker.store.rejected_in_sql(OfferQuery(accelerators=("L4",))),
}
# Nothing in these tests fills it, and PostgreSQL reads an empty table from end to end.
EMPTY = frozenset({"signal_change"})
# A month's entries are thousands: PostgreSQL may read the machines once rather than look each of them up.
JOINED = {"StoreReading.billed_in": {"machine_time"}}


def test_no_query_reads_a_table_that_grows_from_end_to_end(
    new_site: Callable[[int], QuerySite], request: pytest.FixtureRequest
) -> None:
    site = new_site(20_000 if request.node.callspec.params["new_site"] == "postgresql" else 600)
    scans = scans_on_sqlite if site.database.is_sqlite else scans_on_postgresql
    told: dict[str, str] = {}
    for name, query in QUERIES.items():
        statements = recorded(site, query)
        with site.database.reading() as connection:
            for statement, values in statements:
                if bad := set(scans(connection, statement, values)) - EMPTY - JOINED.get(name, set()):
                    told[f"{name}: {statement}"] = str(bad)
    assert not told, "\n".join(f"{what}: {why}" for what, why in told.items())
