"""Reports on the page: the API's figures, down to the jobs and their ledgers."""

import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from html import unescape
from pathlib import Path

import pytest

from broker.app.billing import anomalies
from broker.app.billing.report_documents import SpendingIncidentResult
from broker.core.events.agent_events import MetricsReported, ServedModel, TokensServed
from broker.core.events.events import AttemptEnded, JobEnded, MachineGone
from broker.core.events.outcomes import Cause, JobState
from broker.core.values.money import Money
from broker.ledger.entries import Tags
from broker.server.page.visitors import new_key
from tests.actors import mid_month
from tests.focus_ledger import own_idle_machine, spent
from tests.past import started
from tests.server.page.browsing import FormFields, Site, site_of
from tests.server.world import EVERYBODY, new_world


def test_a_row_opens_its_jobs_and_a_job_its_ledger(seen_site: Site) -> None:
    browser, world = seen_site.of("fay"), seen_site.world
    page = browser.get("/reports?by=team&then=user&simulated=true").text
    (jobs_of_mia,) = {
        unescape(one) for one in re.findall(r'href="(/reports\?by=job[^"]+)"', page) if "nlp" in one and "mia" in one
    }
    opened = browser.get(jobs_of_mia).text
    assert f"/jobs/{world.mine}/ledger" in opened
    assert f"/jobs/{world.foreign}/ledger" not in opened
    assert f"/jobs/{world.nobodys}/ledger" not in opened
    assert browser.get(f"/jobs/{world.mine}/ledger").status_code == 200


def test_figures_are_those_of_the_api(seen_site: Site) -> None:
    for who in ("fay", "mia"):
        report = seen_site.world.get("/reports/spend", who, sandbox=True, period="month").json()
        page = seen_site.of(who).get("/reports?simulated=true").text
        held = sum(float(row["held"]) for row in report["rows"])
        assert f"${held:,.2f}" in page
        for row in report["rows"]:
            assert f">{row['group']}</a>" in page


def test_a_filter_must_name_a_dimension(seen_site: Site) -> None:
    for only, status in (("nlp", 422), ("team:a&only=team:b", 422), ("colour:red", 404)):
        assert seen_site.of("fay").get(f"/reports?by=job&only={only}").status_code == status


def test_prices_are_drawn_and_tabled(seen_site: Site) -> None:
    offers = seen_site.of("mia").get("/offers?provider=sandbox&gpu=L4").text
    history = unescape(re.findall(r'href="(/prices\?[^"]+)"', offers)[0])
    page = seen_site.of("mia").get(history)
    assert page.status_code == 200
    assert "<polyline" in page.text
    assert "losses of this pool seen" in page.text


@pytest.mark.parametrize("page", ["/offers", "/prices"])
def test_a_capacity_type_that_is_none_does_not_show_all(seen_site: Site, page: str) -> None:
    refused = seen_site.of("mia").get(f"{page}?gpu=L4:1&capacity_type=spto")
    assert (refused.status_code, "spot" in refused.text) == (404, True)


def test_anomalies_are_computed_for_all_and_shown_of_ones_own_teams(
    seen_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    day, spent = date(2026, 11, 2), Money.usd("77.25")
    found = [
        SpendingIncidentResult(
            team=team, first=day, last=day, spent=spent, on_own=Money.ZERO, rented=spent, excess=spent, running=False,
            causes=[], answer=None,
        )
        for team in ("nlp", "vision")
    ]  # fmt: skip
    monkeypatch.setattr(anomalies, "spending_anomalies", lambda broker, teams=None: found)
    for who, sees in (("fay", {"nlp", "vision"}), ("mia", {"nlp"})):
        page = seen_site.of(who).get("/reports").text
        assert {one.team for one in found if f"{one.team}, {day}: $77.25" in page} == sees


def test_who_caused_an_anomaly_answers_it_once(tmp_path: Path) -> None:
    """A team that spends about $100 a day, and $150 more today, for a job of mia."""
    world = new_world(tmp_path, mid_month())
    site, today = site_of(world), world.broker.clock.now().replace(hour=0)
    usual = Tags("usual-1", "vic", "nlp", workload="training", attempt=1)
    days = [
        *((usual, ago, 90 + ago * 7 % 21) for ago in range(1, 41)),
        (replace(usual, job_id=world.mine, user="mia"), 0, 250),
    ]
    with world.broker.store.writing() as tx:
        for tags, ago, amount in days:
            begin = today - ago * timedelta(days=1)
            tx.post(spent(ago, str(amount), begin, begin + timedelta(hours=1), begin + timedelta(hours=2), tags=tags))
    path = f"/reports/anomalies/nlp/{today:%Y-%m-%d}"
    offered = {who for who in EVERYBODY if path in FormFields(site.of(who).get("/reports").text).forms}
    assert offered == {"mia", "tara", "adam"}
    form = FormFields(site.of("mia").get("/reports").text).forms[path] | {"answer": "planned", "reason": "a paper <b>"}
    for _ in range(2):
        assert site.of("mia").post(path, form).status_code == 303
    assert "later comparisons, says mia: a paper &lt;b&gt;" in site.of("fay").get("/reports").text
    (incident,) = world.get("/reports/anomalies", "fay").json()["incidents"]
    assert (incident["answer"]["answer"], incident["answer"]["by"]) == ("planned", "mia")
    with world.broker.store.access.reading() as look:
        audit = look.audit(limit=9, subject=f"anomaly of nlp on {today:%Y-%m-%d}")
        lines = [(line.person, line.action, line.after) for _, line in audit]
    assert lines == [("mia", "anomalies.answer", "planned"), ("mia", "anomalies.answer", "")]
    for who, status in (("apple", 422), ("vic", 403), ("otto", 403), ("fay", 403)):
        token = FormFields(site.of(who).get("/").text).forms["/sign-out"]["form_token"]
        assert site.of(who).post(path, form | {"form_token": token, "key": new_key()}).status_code == status, who
    world.broker.close()


def test_a_quarter_and_what_quality_costs_are_shown(site: Site) -> None:
    """Two successful runs of a project: $10 for a loss of 0.5, $15 for 0.25: $20 for a difference of 1."""
    own_idle_machine(site.world.broker.store)
    begins = datetime(2026, 8, 10, tzinfo=UTC)
    for number, loss, cost in ((7, 0.5, "10"), (42, 0.25, "15")):
        job_id = started(site.world.broker.store, number, begins)
        gone, tags = begins + timedelta(hours=2), Tags(job_id, "mia", "team-2", attempt=1)
        with site.world.broker.store.writing() as tx:
            tx.append(job_id, [(1, MetricsReported(metrics={"loss": loss}))], begins)
            tx.append(job_id, [(1, AttemptEnded(cause=Cause.COMPLETED)), (1, MachineGone(gone_at=gone))], gone)
            tx.append(job_id, [(None, JobEnded(state=JobState.SUCCEEDED))], gone)
            tx.post(spent(1, cost, begins, gone, gone, tags=tags))
    page = site.of("fay").get("/reports/month?month=2026-Q3&metric=loss").text
    assert "All teams in 2026-Q3" in page
    assert "$20.00" in page.partition("a difference of 1 in loss, ")[2][:200]
    assert "Showback" not in page, "statements are of months"
    assert "Showback" in site.of("fay").get("/reports/month?month=2026-08").text
    (units,) = [site.world.get("/reports/units", "fay", period="2026-Q3", metric="loss").json()["quality"]]
    assert [row["per_point"] for row in units] == ["20.00"]
    assert site.of("fay").get("/reports/month?month=2026-Q5").status_code == 422


def test_what_served_tokens_cost_is_that_of_the_api(site: Site) -> None:
    begins = datetime(2026, 8, 10, tzinfo=UTC)
    until, qwen = begins + timedelta(hours=1), ServedModel(model="<b>Qwen", input=3000, cached=0, output=1000)
    count = TokensServed(since=begins, until=until, busy_ms=1_800_000, models=(qwen,))
    job_id = started(site.world.broker.store, 7, begins)
    with site.world.broker.store.writing() as tx:
        tx.append(job_id, [(1, count)], until)
        tx.post(spent(1, "10", begins, until, until, tags=Tags(job_id, "mia", "team-2", attempt=1)))
    (row,) = site.world.get("/reports/units", "fay", period="2026-08").json()["served"]
    assert (row["cost"], row["idle_cost"], row["by_weights"]) == ("10.00", "5.00", True)
    page = site.of("fay").get("/reports/month?month=2026-08").text
    row_text = page.partition("Served tokens")[2].partition("</dl>")[0]
    assert "<dt>&lt;b&gt;Qwen</dt>" in row_text
    assert "3,000 tokens in (0 cached), 1,000 out, $10.00, 50 % of it idle; $2,500.00 a million" in row_text


def test_finance_answers_advice_once_and_the_next_month_shows_it(site: Site) -> None:
    own_idle_machine(site.world.broker.store)
    (item,) = site.world.get("/reports/review", "fay", month="2026-09").json()["advice"]
    advice = item["id"]
    path = f"/reports/month/2026-09/advice/{advice}"
    assert path not in site.of("apple").get("/reports/month?month=2026-09").text
    browser = site.of("fay")
    form = FormFields(browser.get("/reports/month?month=2026-09").text).forms[path]
    filled = form | {"verdict": "done", "reason": "sold <b>"}
    for _ in range(2):
        answer = browser.post(path, filled)
        assert (answer.status_code, answer.headers["location"]) == (303, "/reports/month?month=2026-09")
    assert "; done by fay: sold &lt;b&gt;" in browser.get("/reports/month?month=2026-09").text
    october = browser.get("/reports/month?month=2026-10").text
    effect = october.partition("Effect of the last month")[2]
    assert "done by fay: sold" in effect
    assert "$3,600.00" in effect, "half of what was paid was idle in September"
    with site.world.broker.store.access.reading() as look:
        audit = look.audit(limit=9, subject=f"{advice} of 2026-09")
        lines = [(line.person, line.action, line.after) for _, line in audit]
    assert lines == [("fay", "advice.answer", "done"), ("fay", "advice.answer", "")]
    assert browser.send_form("/reports/month?month=2026-09", path, verdict="later").status_code == 404
