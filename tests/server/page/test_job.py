"""The page of a job: its attempts on one axis of time, each with its end and its cost; and its news as they come."""

import re
from collections.abc import Iterator

import pytest

from broker.app.access import sessions
from broker.app.jobs import jobs
from broker.app.jobs.logs import OutputFollower
from broker.core.actors import Actor
from broker.server.api import routes
from tests.server.page.browsing import Site
from tests.server.page.grown import interrupted


def test_attempts_stand_on_one_axis_with_their_ends_and_costs(site: Site) -> None:
    id = interrupted(site.world)
    page = site.of("adam").get(f"/jobs/{id}").text
    picture, _, table = page.partition('<svg class="timeline"')[2].partition("</svg>")
    assert picture.count('<rect class="axis"') == picture.count('<rect class="waits"') == 3
    assert (picture.count('<rect class="spot"'), picture.count('<rect class="on-demand"')) == (2, 1)
    assert picture.count('<line class="broke"') == 2, "the last attempt goes on"
    assert picture.count("<circle") > 5
    assert '<line class="now"' in picture
    assert '<line class="deadline"' in picture
    newest, second, first = re.findall(r"<tr><td class=\"n\">(.*?)</tr>", table, re.DOTALL)[:3]
    assert newest.startswith("3<")
    assert "interrupted by the provider; notice from the provider" in first
    assert "$20.00 cash" in second
    listed = site.world.get(f"/jobs/{id}/attempts", "adam").json()["attempts"]
    assert [one["cost"]["cash"] for one in listed] == ["20.00", "20.00", "0.00"]
    assert [one["steps_redone"] for one in listed] == [0, 200, 400]
    assert '<td data-label="steps done again" class="n">400</td>' in newest
    assert site.of("otto").get(f"/jobs/{id}").status_code == 404


def test_a_job_without_attempts_has_no_timeline(seen_site: Site) -> None:
    page = seen_site.of("mia").get(f"/jobs/{seen_site.world.asking}").text
    assert "timeline" not in page
    assert f'data-news="/jobs/{seen_site.world.asking}/news"' in page


def test_news_begin_now_and_are_those_that_the_visitor_may_see(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    world, broker = site.world, site.world.broker
    answer = site.of("mia").get(f"/jobs/{world.mine}/news?seconds=0")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text == 'event: end\ndata: {"because": "time"}\n\n', "what is on the page already is no news"
    view = jobs.find(broker, world.mine)
    stream = routes.JobStream(broker, world.mine, view.seq, 0, output=False)
    (message, *_) = stream.news(jobs.cancel(broker, view, by=Actor("mia")))
    assert '"kind": "cancel_requested"' in message

    def unreadable(self: OutputFollower, view: object, only: object) -> Iterator[object]:
        raise AssertionError("the page renews its figures alone")

    monkeypatch.setattr(OutputFollower, "new", unreadable)
    assert site.of("fay").get(f"/jobs/{world.mine}/news?seconds=0").status_code == 200
    assert site.of("otto").get(f"/jobs/{world.mine}/news?seconds=0").status_code == 404


def test_news_end_with_the_session(site: Site) -> None:
    broker, browser = site.world.broker, site.of("mia")
    (cookie,) = browser.client.cookies.jar
    stream = routes.JobStream(broker, site.world.mine, 0, 0, output=False)

    def read() -> str:
        return routes._read_news(stream, lambda: sessions.resume(broker, cookie.value or "", used=False))[1]

    assert read() == ""
    sessions.sign_out(broker, cookie.value or "", origin="page")
    assert read() == "access"
