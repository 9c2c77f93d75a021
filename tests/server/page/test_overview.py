"""What needs a person comes first, the costliest first, each with its reason and one action: on the overview, in lists
of budgets and jobs, and in the head of a job."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from broker.app.use_cases import overview
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.events.wait_reasons import MoneyEnded
from broker.core.values import figures
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.ledger.entries import Tags
from tests.actors import mid_month, with_clock
from tests.focus_ledger import spent
from tests.past import finished
from tests.server.page.browsing import Site, site_of
from tests.server.page.grown import in_trouble
from tests.server.world import STRANGER, new_world, submitted

KINDS = {"slow": "launch_slow", "late": "deadline_at_risk", "paused": "job_paused"}


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, dict[str, str]]]:
    made = new_world(tmp_path_factory.mktemp("troubled"))
    still = ManualClock(made.broker.clock.now())  # else the page tells of other times than the API
    world = replace(made, broker=with_clock(made.broker, still))
    jobs = in_trouble(world)
    yield site_of(world), jobs
    world.broker.close()


def concerns(site: Site, who: str) -> list[Any]:
    listed: list[Any] = site.world.get("/overview", who).json()["concerns"]
    return listed


def test_the_only_exceeded_budget_is_the_first_thing(troubled: tuple[Site, dict[str, str]]) -> None:
    site, _ = troubled
    first, *rest = concerns(site, "adam")
    assert (first["kind"], first["subject"]) == ("budget_exceeded", "tiny")
    budgets = {one["id"]: one for one in site.world.get("/budgets", "adam").json()["budgets"]}
    assert list(budgets)[-1] == "tiny", "the last of its file"
    assert [id for id, one in budgets.items() if one["standing"] == "exceeded"] == ["tiny"]
    assert site.world.get("/overview", "adam").json()["budgets"][0] == budgets["tiny"]
    assert Money.usd(first["amount"]) == -Money.usd(budgets["tiny"]["left"])
    amounts = [Money.usd(one["amount"] or 0) for one in rest]
    assert amounts == sorted(amounts, reverse=True)
    text = site.of("adam").get("/").text
    row = re.search(r'<ul class="needs"><li>(.*?)</li>', text, re.DOTALL)
    assert row
    assert "Budget tiny is" in row[1]
    assert row[1].count("<a ") == row[1].count('href="/budgets/tiny"') == 1, "one action"
    for page in (text, site.of("adam").get("/budgets").text):
        ids = re.findall(r'<strong><a href="/budgets/([^"]+)"', page)
        assert ids[0] == "tiny"
        folded = page.partition("budgets are on plan")[2]
        assert 'href="/budgets/tiny"' not in folded


def test_every_concern_has_a_reason_and_an_action_that_leads_somewhere(troubled: tuple[Site, dict[str, str]]) -> None:
    site, jobs = troubled
    listed = concerns(site, "adam")
    expected = {jobs[name]: kind for name, kind in KINDS.items()} | {"cloud": "prices_suspicious"}
    expected |= {"tiny": "budget_exceeded", site.world.asking: "approval"}
    assert {one["subject"]: one["kind"] for one in listed} == expected
    text = site.of("adam").get("/").text
    for one in listed:
        assert str(escape(one["summary"])) in text
        assert one["because"]
        assert str(escape(one["because"])) in text
    links = re.findall(r'<a class="button quiet" href="([^"#]+)[^"]*">', text)
    assert len(links) == len(listed)
    for link in set(links):
        assert site.of("adam").get(link).status_code == 200, link


def test_the_normal_is_one_line(troubled: tuple[Site, dict[str, str]], seen_site: Site) -> None:
    site, _ = troubled
    assert "<summary>4 budgets are on plan</summary>" in site.of("adam").get("/").text
    assert site.of("adam").get("/").text.count('<a class="tile') <= 5
    assert "Nothing waits for you" in seen_site.of("vic").get("/").text


def test_nobody_is_told_of_what_they_may_not_see(troubled: tuple[Site, dict[str, str]]) -> None:
    site, jobs = troubled
    for who, budgets in (("mia", ["tiny"]), ("otto", [])):
        listed = concerns(site, who)
        assert [one["subject"] for one in listed if one["kind"].startswith("budget")] == budgets
        assert not {one["subject"] for one in listed} & {*jobs.values(), site.world.asking}, (
            "of other teams, or one's own"
        )
    assert concerns(site, "apple")[1]["subject"] == site.world.asking
    assert site.of("nora").get("/").status_code == 200


def test_others_jobs_do_not_crowd_out_those_of_the_own_team(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "_MAX_JOBS", 2)
    for name in ("newer", "newest"):
        submitted(site.world.broker, name, STRANGER, "vision")
    now = site.world.broker.clock.now()
    with site.world.broker.store.writing() as tx:
        tx.append(site.world.mine, [(1, ev.AttemptEnded(cause=Cause.PAID_UNTIL))], now)
        tx.append(site.world.mine, [(None, ev.Paused(reason=MoneyEnded(evidence="max_cost")))], now)
    assert "mine is paused" in [one["summary"] for one in concerns(site, "mia")]


def test_what_runs_is_counted_and_priced_apart_by_kind_of_money(troubled: tuple[Site, dict[str, str]]) -> None:
    site, _ = troubled
    running = site.world.get("/overview", "adam").json()["running"]
    assert running == {
        "jobs": 1,
        "gpus": 8,
        "rate_per_hour": {"cash": "10.00", "amortised": "0.00", "sandbox": "0.00"},
    }
    assert "<strong>$10.00 <small>an hour</small></strong>" in site.of("adam").get("/").text
    assert site.world.get("/overview", "otto").json()["running"]["jobs"] == 0


def test_a_bar_is_as_long_as_the_excess(troubled: tuple[Site, dict[str, str]]) -> None:
    site, _ = troubled
    page = site.of("adam").get("/budgets/tiny").text
    over = re.search(r'<rect class="over" x="([\d.]+)%" width="([\d.]+)%"', page)
    limit = re.search(r'<line class="limit" x1="([\d.]+)%"', page)
    assert over
    assert limit
    budget = site.world.get("/budgets/tiny", "adam").json()
    used = Money.usd(budget["spent"]) + Money.usd(budget["held"])
    assert float(limit[1]) == float(over[1]) == pytest.approx(100 * Money.usd(1).micros / used.micros, abs=0.01)
    assert float(over[1]) + float(over[2]) == pytest.approx(100, abs=0.01)
    assert '<rect class="over"' not in site.of("adam").get("/budgets/nlp").text


def test_jobs_that_need_a_person_come_first_and_the_ended_are_folded(troubled: tuple[Site, dict[str, str]]) -> None:
    site, jobs = troubled
    browser = site.of("adam")
    ended = finished(site.world.broker.store, 7, site.world.broker.clock.now() - timedelta(days=2))
    open_part, _, folded = browser.get("/jobs").text.partition("<details>")
    ids = re.findall(r'<td><a href="/jobs/([^"]+)"', open_part)
    assert set(ids[:3]) == {jobs["late"], jobs["paused"], site.world.asking}
    assert ids[0] == jobs["late"], "the dearest of them"
    assert "1 job has ended" in folded
    assert re.findall(r'<td><a href="/jobs/([^"]+)"', folded) == [ended]
    people = browser.get("/jobs?state=people").text
    assert set(re.findall(r'<td><a href="/jobs/([^"]+)"', people)) == {jobs["paused"], site.world.asking}
    assert f'<td><a href="/jobs/{ended}"' in browser.get("/jobs?state=ended").text
    assert "<details>" not in browser.get("/jobs?state=ended").text, "what was asked for is not folded"


def test_a_job_begins_with_its_key_facts(troubled: tuple[Site, dict[str, str]]) -> None:
    site, jobs = troubled
    text = site.of("adam").get(f"/jobs/{jobs['late']}").text
    head = text.partition("<h2>")[0]
    job = site.world.get(f"/jobs/{jobs['late']}", "adam").json()
    assert 'href="#i-clock"/></svg>running, deadline at risk</span>' in head
    assert figures.money(Money.usd(job["cost_so_far"])) in head
    assert "$10.00 an hour" in head
    assert "deadline in 1h 00m" in head
    assert "8 × H100" in head
    assert head.index('class="button danger outlined"') > head.index("Clone …"), "danger stands last"


def test_alternatives_are_compared_with_the_place_that_was_taken(troubled: tuple[Site, dict[str, str]]) -> None:
    site, _ = troubled
    text = site.of("mia").get(f"/jobs/{site.world.mine}").text
    (decision,) = site.world.get(f"/jobs/{site.world.mine}/placements", "mia").json()["decisions"]
    for option in decision["next_best"]:
        more = Money.usd(option["ranked_by"]) - Money.usd(decision["taken"]["ranked_by"])
        assert f"{figures.money(more)} more</td>" in text


def test_whoever_is_named_but_may_not_approve_is_not_asked(site: Site) -> None:
    asked = submitted(site.world.broker, "by-apple", "apple", "nlp", most="6h")
    assert [one["subject"] for one in concerns(site, "mia")] == [], "the rule names her, her role does not suffice"
    assert {one["subject"] for one in concerns(site, "adam")} == {asked, site.world.asking}


@pytest.fixture
def spending(tmp_path: Path) -> Iterator[Site]:
    """In the middle of a month: $100 a day of nlp and $10 of vision up to yesterday, $40 of nlp today."""
    world = new_world(tmp_path, mid_month())
    now = world.broker.clock.now()
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    with world.broker.store.writing() as tx:
        for ago in range(41):
            for user, team, amount in (("mia", "nlp", 100 if ago else 40), ("otto", "vision", 10 if ago else 0)):
                begin, tags = today - ago * timedelta(days=1), Tags(f"of-{team}", user, team, workload="training")
                if amount:
                    tx.post(
                        spent(ago, str(amount), begin, begin + timedelta(hours=1), now, tags=replace(tags, attempt=1))
                    )
    yield site_of(world)
    world.broker.close()


def test_a_month_is_drawn_by_day_with_what_is_expected_of_it(spending: Site) -> None:
    own, whole = (spending.world.get("/reports/month", who).json() for who in ("mia", "fay"))
    day = spending.world.broker.clock.now().day
    assert [Money.usd(one["spent"]) for one in own["days"]] == [Money.usd(100)] * (day - 1) + [Money.usd(40)]
    assert [Money.usd(one["spent"]) for one in whole["days"]] == [Money.usd(110)] * (day - 1) + [Money.usd(40)]
    length = date.fromisoformat(own["last"]).day
    assert Money.usd(own["expected"]).micros == pytest.approx(100e6 * length, rel=0.02)
    assert Money.usd(own["expected_low"]) <= Money.usd(own["expected"]) <= Money.usd(own["expected_high"])
    assert (own["unused_capacity"], whole["unused_capacity"]) == (None, "0.00")
    page = spending.of("mia").get("/").text
    picture, _, table = page.partition('<svg class="days"')[2].partition("</svg>")
    assert picture.count('<rect class="spent"') == day
    assert picture.count('<rect class="ahead"') == length - day + 1, "also of today"
    assert figures.money(Money.usd(own["expected"])) in page
    assert table.partition("</table>")[0].count("<td>") == day
    assert "vision" not in page
    assert spending.of("nora").get("/").status_code == 200


def test_waste_is_a_tile_of_what_the_visitor_may_see(spending: Site) -> None:
    own_idle = Holding(HoldingKind.OWNED, "H100", 8, "hall", "here", *_month_of(spending), upfront=Money.usd("3000"))
    spending.world.broker.store.add_holding(own_idle, by="adam")
    whole = spending.world.get("/reports/month", "fay").json()
    unused = Money.usd(whole["unused_capacity"])
    assert unused > Money.usd(1000)
    tile = spending.of("fay").get("/").text.partition("Idle or wasted</span>")[2].partition("</a>")[0]
    assert figures.money(unused) in tile
    own = spending.of("mia").get("/").text.partition("Idle or wasted</span>")[2].partition("</a>")[0]
    assert "unused" not in own, "capacity serves all teams"
    assert "$0.00" in own


def _month_of(site: Site) -> tuple[datetime, datetime]:
    begin = site.world.broker.clock.now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return begin, begin + timedelta(days=30)
