"""A job of a priority that preempts takes the place of a running one: its money is held first, the other saves and
continues elsewhere, and people read why."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from pydantic import SecretStr
from rich.console import Console

from broker.app.alerts.preemptions import queue_notices
from broker.app.jobs import jobs
from broker.app.jobs.queue import QueuePlanner, explain_queue, team_queue
from broker.app.jobs.queue_documents import QueueResult
from broker.app.jobs.reasons import stop_text, wait_text
from broker.app.wiring import Broker
from broker.cli.jobs.queue_view import queue_table
from broker.core.errors import StoreProblem
from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved, Claimed, CommandStarted
from broker.core.events.outcomes import Cause
from broker.core.events.views import JobView, SavedCheckpoint
from broker.core.events.wait_reasons import MoveAdvantage, MovesElsewhere
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.placement.planner import PlanInputs
from broker.reconciler.progress import lost_by_stop
from broker.reconciler.visit_order import running_jobs
from broker.store.jobs.journal import StoreWriter
from tests.actors import with_clock
from tests.app.jobs.test_queue import POLICY, look, market, queued

PREEMPTS = POLICY + "priorities: {urgent: {preempts: true}}\n"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def site(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """A machine of our own with two GPUs, which costs nothing more, and nothing to rent."""
    broker = with_clock(broker, ManualClock(broker.clock.now()))
    broker.store.activate_policy({"t.yaml": PREEMPTS}, by="test")
    for place in ("preview", "queue"):
        monkeypatch.setattr(f"broker.app.jobs.{place}.market_for", lambda *_, **__: machine(broker))
    monkeypatch.setattr("tests.app.jobs.test_queue.market", lambda *_: machine(broker))
    return broker


def machine(broker: Broker) -> PlanInputs:
    found = market(broker, "own")
    return replace(found, offers=[replace(offer, count=2, slots=1) for offer in found.offers])


def wait(site: Broker, time: timedelta) -> None:
    assert isinstance(site.clock, ManualClock)
    site.clock.advance(time)


def says(site: Broker, name: str, number: int, *bodies: ev.EventBody) -> JobView:
    view = jobs.find(site, name)
    with site.store.writing() as tx:
        return tx.append(view.id, [(number, body) for body in bodies], site.clock.now())


def runs(site: Broker, name: str, more: str = "") -> JobView:
    """A job at work on an owned machine from now on."""
    queued(site, name, more)
    look(site, "own")
    number = jobs.find(site, name).attempt_count
    launched = ev.Launched(handle=name), ev.MachineUp(since=site.clock.now())
    return says(site, name, number, *launched, Claimed(host="own"), CommandStarted())


def stopping(site: Broker) -> list[str]:
    with site.store.reading() as reader:
        views = reader.unclosed()
    latest = [(view.job.name, view.latest) for view in views]
    return [name for name, attempt in latest if attempt and attempt.stop_requested and not attempt.over]


def leaves(site: Broker, name: str) -> None:
    number = jobs.find(site, name).attempt_count
    gone = ev.MachineGone(gone_at=site.clock.now(), evidence="", interrupted=False)
    says(site, name, number, ev.AttemptEnded(cause=Cause.MOVED), gone)


def shown(site: Broker) -> str:
    console = Console(width=300)
    with console.capture() as printed:
        console.print(*queue_table(console, QueueResult.of(explain_queue(site))))
    return " ".join(printed.get().split())


def test_the_one_that_just_saved_gives_way_and_goes_on_from_its_checkpoint(site: Broker) -> None:
    runs(site, "long")
    runs(site, "saved", "checkpoint: {every: 1h}\n")
    wait(site, 50 * MINUTE)
    says(site, "saved", jobs.find(site, "saved").attempt_count, CheckpointSaved(checkpoint="c1", step=7, size=1))
    wait(site, 10 * MINUTE)
    asker = queued(site, "rush", "priority: urgent\n")
    assert f"takes the place of {jobs.find(site, 'saved').id}: $" in shown(site)

    look(site, "own")
    victim = jobs.find(site, "saved")
    assert stopping(site) == ["saved"]
    assert victim.latest is not None
    assert victim.latest.stop_requested is Cause.MOVED
    assert f"gives way to {asker.id}: its wait costs about $" in stop_text(victim.latest.stop_reason)
    assert f"(asked to make room: {victim.id})" in wait_text(jobs.find(site, "rush").waiting)
    assert f"asked to make room: {victim.id}" in shown(site)

    leaves(site, "saved")
    wait(site, MINUTE)
    found = look(site, "own")
    assert found["rush"] == "own"
    assert found["saved"].startswith("waits for its turn")
    assert stopping(site) == []


def test_nobody_stops_for_a_job_that_the_gate_refuses(site: Broker) -> None:
    runs(site, "long")
    runs(site, "other")
    wait(site, 60 * MINUTE)
    queued(site, "rush", "priority: urgent\nproject: barred\n")
    assert "takes the place of" in shown(site)
    barred = "guardrails: [{name: barred, max_job_duration: 1h, scope: {project: barred}}]\n"
    site.store.activate_policy({"t.yaml": PREEMPTS + barred}, by="test")
    look(site, "own")
    assert stopping(site) == []


def test_nobody_stops_unless_the_money_is_held(site: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(site, "long")
    runs(site, "other")
    wait(site, 60 * MINUTE)
    queued(site, "rush", "priority: urgent\n")

    def fails(*_: object) -> None:
        raise StoreProblem("the disk is full")

    monkeypatch.setattr(StoreWriter, "post", fails)
    with pytest.raises(StoreProblem):
        look(site, "own")
    assert stopping(site) == []


def test_nobody_stops_by_a_round_that_is_out_of_date(site: Broker) -> None:
    runs(site, "a")
    runs(site, "b")
    wait(site, 60 * MINUTE)
    asker = queued(site, "rush", "priority: urgent\n")
    line = QueuePlanner(site)
    found = line.decision(asker, site.clock.now()).preemption
    assert found is not None
    (victim,) = (job.id.rpartition("-")[0] for job in found.jobs)
    leaves(site, victim)
    look(site, "own", line=line)
    assert stopping(site) == []


@pytest.mark.parametrize("now_in_force", ["", "priorities: {urgent: {preempts: true, min_runtime: 9h}}\n"])
def test_nobody_stops_by_a_round_under_a_policy_that_is_no_longer_in_force(site: Broker, now_in_force: str) -> None:
    runs(site, "a")
    runs(site, "b")
    wait(site, 60 * MINUTE)
    asker = queued(site, "rush", "priority: urgent\n")
    line = QueuePlanner(site)
    assert line.decision(asker, site.clock.now()).preemption is not None
    site.store.activate_policy({"t.yaml": POLICY + now_in_force}, by="test")
    look(site, "own", line=line)
    assert stopping(site) == []


def test_nobody_stops_without_a_policy_that_says_so(site: Broker) -> None:
    site.store.activate_policy({"t.yaml": POLICY}, by="test")
    runs(site, "long")
    runs(site, "other")
    wait(site, 60 * MINUTE)
    queued(site, "rush", "priority: urgent\n")
    found = look(site, "own")
    assert stopping(site) == []
    assert "queued, too few owned machines are free" in found["rush"]


@pytest.mark.parametrize(
    ("more", "minutes", "gives_way"),
    [
        ("", 18, False),  # and the eleven minutes of `queued`
        ("", 19, True),
        ("priority: urgent\n", 60, False),
        ("session: {idle: 9h}\n", 60, False),
        ("value_of_time: $5000\n", 60, False),  # an hour of it is worth more than the wait for it
    ],
)
def test_who_is_protected(site: Broker, more: str, minutes: int, gives_way: bool) -> None:
    runs(site, "a", more)
    runs(site, "b", more)
    wait(site, minutes * MINUTE)
    queued(site, "rush", "priority: urgent\n")
    assert ("takes the place of" in shown(site)) is gives_way
    look(site, "own")
    assert len(stopping(site)) == gives_way


@pytest.mark.parametrize(("hours", "times"), [((1,), 1), ((1, 23), 2), ((24,), 0)])
def test_how_often_it_gave_way_in_the_last_day_counts(site: Broker, hours: Sequence[int], times: int) -> None:
    view, now = runs(site, "a"), site.clock.now()
    assert view.latest is not None
    reason = MovesElsewhere(advantage=MoveAdvantage.GIVES_WAY, to=None, job="rush-1")
    earlier = [replace(view.latest, stop_reason=reason, stop_requested_at=now - timedelta(hours=ago)) for ago in hours]
    (job,) = running_jobs([replace(view, attempts=(*earlier, view.latest))], None, now)
    assert job.gave_way == times


@pytest.mark.parametrize(
    ("more", "price", "default", "lost"),
    [
        ("", "0", None, "0.10"),  # what an hour of waiting costs a normal job on one GPU
        ("priority: low\n", "0", None, "0.02"),
        ("", "3", None, "3"),
        ("", "0", "4", "4"),
        ("", "5", "4", "5"),
        ("value_of_time: $7\n", "0", "4", "7"),
        ("value_of_time: $0\n", "0", "4", "0"),  # its owner says that its hours are worth nothing
        ("deadline: 90h\n", "0", "4", "0.10"),  # a deadline overrides the value of time
    ],
)
def test_an_hour_costs_its_price_or_what_the_job_says(
    site: Broker, more: str, price: str, default: str | None, lost: str
) -> None:
    """As of a job of whose work an hour is lost."""
    view = runs(site, "a", more)
    assert view.latest is not None
    began = site.clock.now() - 60 * MINUTE
    placement = replace(view.latest.placement, rate=Money.usd(price))
    attempt = replace(view.latest, placement=placement, running_at=began, up_since=began)
    value = None if default is None else Money.usd(default)
    (job,) = running_jobs([replace(view, attempts=(attempt,))], value, site.clock.now())
    assert job.lost == Money.usd(lost)


def written(site: Broker, view: JobView) -> str:
    """All that is on record about a job."""
    with site.store.reading() as reader:
        return f"{reader.events(view.id)} {list(reader.decisions(job_id=view.id))}"


def test_jobs_of_other_teams_are_counted_and_not_named(site: Broker) -> None:
    runs(site, "a", "team: nlp\n")
    runs(site, "b", "team: vision\nnum_nodes: 1\n")
    wait(site, 60 * MINUTE)
    asker = queued(site, "rush", "priority: urgent\nteam: vision\nnum_nodes: 2\n")
    mine, other = jobs.find(site, "b").id, jobs.find(site, "a").id
    assert f"takes the place of {other}, {mine}: $" in shown(site) or f"{mine}, {other}" in shown(site)
    (before,) = QueueResult.of(team_queue(site, ["vision"])).waiting
    assert before.preemption is not None
    assert (before.preemption.jobs, before.preemption.others) == ([mine], 1)

    look(site, "own")
    assert sorted(stopping(site)) == ["a", "b"]
    (after,) = QueueResult.of(team_queue(site, ["vision"])).waiting
    assert f"(asked to make room: {mine} and 1 job of another team)" in after.waiting_because
    reasons = {name: jobs.find(site, name).latest for name in ("a", "b")}
    texts = {name: stop_text(attempt.stop_reason) for name, attempt in reasons.items() if attempt}
    assert texts["a"].startswith("gives way to a job of another team: its wait costs about $")
    assert texts["b"].startswith(f"gives way to {asker.id}: ")
    assert other not in written(site, asker)
    assert asker.id not in written(site, jobs.find(site, "a"))
    site.settings = site.settings.model_copy(update={"notify": {"mail": SecretStr("json://localhost")}})
    notices = {notice.teams: notice.title for notice in queue_notices(site)}
    assert notices[("nlp",)] == "a of ann gives way to a job of another team"


@pytest.mark.parametrize(
    ("every", "checkpoint", "start", "lost"),
    [
        (None, None, 3, 63),  # all of it, and the start
        (None, 20, 3, 23),
        (None, 20, -3, 20),  # a clock that was set
        (90, None, 3, 63),
        (45, None, 3, 48),  # it promised to save
        (45, 20, 3, 23),
    ],
)
def test_what_a_stop_loses(site: Broker, every: int | None, checkpoint: int | None, start: int, lost: int) -> None:
    """Minutes: since a checkpoint an hour after the command began, and from machine to command."""
    view, now = runs(site, "a", f"checkpoint: {{every: {every}m}}\n" if every else ""), site.clock.now()
    assert view.latest is not None
    began = now - 60 * MINUTE
    saved = [SavedCheckpoint("c", 1, 1, now - checkpoint * MINUTE)] if checkpoint else []
    attempt = replace(view.latest, running_at=began, up_since=began - start * MINUTE, checkpoints=tuple(saved))
    assert lost_by_stop(replace(view, attempts=(attempt,)), now) == lost * MINUTE


def test_the_time_to_start_again_is_that_of_earlier_restarts(site: Broker) -> None:
    view, now = runs(site, "a"), site.clock.now()
    assert view.latest is not None
    attempts = [
        replace(view.latest, running_at=now, up_since=now - minutes * MINUTE, resumed_from=resumed)
        for minutes, resumed in ((30, None), (4, "c1"), (9, "c2"), (5, "c3"))
    ]
    assert lost_by_stop(replace(view, attempts=tuple(attempts)), now) == 5 * MINUTE


def test_people_are_told_once(site: Broker) -> None:
    runs(site, "a", "team: nlp\n")
    runs(site, "b")
    wait(site, 60 * MINUTE)
    asker = queued(site, "rush", "priority: urgent\n")
    look(site, "own")
    site.settings = site.settings.model_copy(update={"notify": {"mail": SecretStr("json://localhost")}})
    (notice,) = queue_notices(site)
    assert notice.title == f"{stopping(site)[0]} of ann gives way to {asker.id}"
    assert queue_notices(site) == []
