"""Money on the page: entry by entry, day by day."""

import re
from datetime import timedelta

import pytest

from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import Movement, move
from broker.reconciler.settlement.settlement import tags_of
from broker.server.page.charts import percent_of
from broker.server.page.render import moment
from tests.server.page.browsing import Site

AMOUNTS = ("0.123457", "0.2", "-0.05")


@pytest.fixture
def spent(site: Site) -> Site:
    """The job `mine` has cost something: two settlements, and a charge that gave some back."""
    broker = site.world.broker
    with broker.store.writing() as tx:
        view = tx.job(site.world.mine)
        assert view is not None
        assert view.latest is not None
        now = broker.clock.now()
        for number, amount in enumerate(AMOUNTS):
            entries = move(
                Movement.ADJUST if amount.startswith("-") else Movement.SETTLE,
                Money.usd(amount),
                movement_id=f"test/{number}",
                money=MoneyKind.SANDBOX,
                at=now,
                covers=(now - timedelta(minutes=3), now),
                tags=tags_of(view, view.latest),
                note="<i>late</i>",
            )
            tx.post(entries)
    return site


def test_the_entries_of_a_job_add_up_to_its_cost(spent: Site) -> None:
    world = spent.world
    job = world.get(f"/jobs/{world.mine}", "mia").json()
    ledger = world.get(f"/jobs/{world.mine}/ledger", "mia").json()
    assert ledger["total"] == job["cost"]
    assert [Money.usd(one["amount"]) for one in ledger["entries"]] == [Money.usd(one) for one in AMOUNTS]
    (attempt,) = job["attempts"]
    for one in ledger["entries"]:
        assert one["rate_per_hour"] == attempt["placement"]["rate_per_hour"]
        assert one["price_source"] == attempt["placement"]["source"] == "sandbox"
        assert one["price_as_of"] == attempt["placement"]["price_as_of"]
        assert one["price_age_seconds"] >= 0


def test_the_page_shows_every_entry_to_the_micro_dollar(spent: Site) -> None:
    text = spent.of("fay").get(f"/jobs/{spent.world.mine}/ledger").text
    for amount in ("$0.123457", "$0.20", "-$0.05", "$0.27 simulated"):
        assert amount in text
    assert "&lt;i&gt;late" in text
    assert "old at the launch" in text
    assert f"/jobs/{spent.world.mine}/ledger" in spent.of("fay").get(f"/jobs/{spent.world.mine}").text


def test_a_budgets_chart_stands_beside_its_table(spent: Site) -> None:
    text = spent.of("mia").get("/budgets/nlp").text
    (_, points) = re.findall(r'<polyline class="\w+" points="([^"]+)"', text)
    places = [tuple(float(part) for part in point.split(",")) for point in points.split()]
    assert places == sorted(places)[: len(places)]
    assert all(0 <= x <= 600 and 0 <= y <= 120 for x, y in places)
    (now, limit) = (places[-1], 120.0 * (1 - 0.273457 / 100))
    assert now[1] == pytest.approx(limit, abs=0.06), "of a limit of $100"
    assert text.count("<tr><td><time") == len(places)
    assert f'href="/jobs/{spent.world.mine}"' in text, "it holds money"


def test_bars_have_ends_and_unknown_is_no_zero() -> None:
    limit = Money.usd(10)
    assert [percent_of(Money.usd(amount), limit) for amount in (-1, 0, 5, 10, 99)] == [0, 0, 50, 100, 100]
    assert percent_of(Money.ZERO, Money.ZERO) == 100
    assert moment(None) == "–"


def test_times_are_utc(seen_site: Site) -> None:
    at = seen_site.world.get(f"/jobs/{seen_site.world.mine}", "mia").json()["submitted_at"]
    text = seen_site.of("mia").get(f"/jobs/{seen_site.world.mine}").text
    assert f"{at[:10]} {at[11:16]} UTC" in text
