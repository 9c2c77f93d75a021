"""The daily deletion of what the active policy no longer keeps: jobs that are due, and no others, each for itself."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.app.jobs import retention
from broker.app.service.duties import RetentionDuty
from broker.app.wiring import Broker
from broker.core.errors import Unreachable
from broker.core.events import events as ev
from broker.core.events.outcomes import JobState
from broker.core.job.jobs import Job, Predecessor
from broker.core.notices import Notice
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.engines.runfolder.retention import AttemptFiles, attempt_files
from tests.actors import with_clock
from tests.store.fields import spot_offer

NOW = datetime(2026, 11, 20, tzinfo=UTC)
DAY = timedelta(days=1)
KEEPS = "version: 1\npolicy: short\ndefaults: {keep_results: 30d, keep_logs: 5d}\n"


@pytest.fixture
def broker(new_broker: Callable[[], Broker]) -> Broker:
    broker = with_clock(new_broker(), ManualClock(NOW))
    broker.store.activate_policy({"short.yaml": KEEPS}, by="ann")
    return broker


def ended(broker: Broker, job_id: str, days: float) -> Path:
    """A job that ended so many days ago and left a result and a log; its run folder."""
    at = NOW - days * DAY
    with broker.store.writing() as tx:
        submitted = ev.Submitted(job=Job(name=job_id, run="true"), user="ann", max_duration_seconds=60.0)
        tx.append(job_id, [(None, submitted)], at - DAY)
        tx.append(job_id, [(None, ev.JobEnded(state=JobState.SUCCEEDED)), (None, ev.JobClosed())], at)
    folder = Path(str(broker.settings.runs).removeprefix("file://")) / job_id
    for file in ("outputs/result.txt", "logs/0.log"):
        (folder / "attempts/1" / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / "attempts/1" / file).write_text("x")
    return folder


def left(folder: Path) -> set[str]:
    return {file.name for file in folder.rglob("*") if file.is_file()}


def test_each_kind_of_file_goes_when_its_time_is_over(broker: Broker) -> None:
    young, logless, old, long_gone = (
        ended(broker, f"j{number}-xxxxx", days) for number, days in enumerate((4, 6, 31, 45))
    )
    done = RetentionDuty(broker, say=print).once()
    assert [one.view.id for one in done.deleted] == ["j2-xxxxx", "j1-xxxxx"], "oldest first"
    assert [left(folder) for folder in (young, logless)] == [{"result.txt", "0.log"}, {"result.txt"}]
    assert left(old) == set()
    assert left(long_gone) == {"result.txt", "0.log"}, "due so long ago is left to people"
    assert RetentionDuty(broker, say=print).once().deleted == ()


@pytest.mark.parametrize(("says", "kept"), [("keep_notices: 100d", ["new"]), ("keep_logs: 5d", ["new", "old"])])
def test_delivered_notices_go_when_their_time_is_over(broker: Broker, says: str, kept: list[str]) -> None:
    broker.store.activate_policy({"short.yaml": f"version: 1\npolicy: short\ndefaults: {{{says}}}\n"}, by="ann")
    outbox = broker.store.outbox
    for key, days in (("old", 101), ("new", 99)):
        outbox.add(Notice(key, "", ""), ["ops"], NOW - days * DAY)
        sent = outbox.claim(["ops"], NOW, DAY)
        assert sent is not None
        outbox.mark_delivered(sent, NOW - days * DAY)
    RetentionDuty(broker, say=print).once()
    assert [one.notice.key for one in outbox.newest(9, failed=False)] == kept


@pytest.mark.parametrize(("says", "kept"), [("keep_prices: 30d", [40, 2]), ("keep_logs: 5d", [50, 40, 2])])
def test_price_history_goes_when_its_time_is_over(broker: Broker, says: str, kept: list[int]) -> None:
    broker.store.activate_policy({"short.yaml": f"version: 1\npolicy: short\ndefaults: {{{says}}}\n"}, by="ann")
    for days in (50, 40, 2):
        at = NOW - days * DAY
        broker.store.record_poll("aws", started=at, finished=at, offers=[spot_offer("p5", Money(days), at)])
    RetentionDuty(broker, say=print).once()
    points = broker.store.market.price_series(spot_offer("p5", Money(1), NOW), NOW - 90 * DAY, NOW)
    assert [point.price for point in points] == [Money(days) for days in kept], "the price of 30 days ago stays"


def test_a_folder_that_cannot_be_read_keeps_no_other_and_is_told_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [ended(broker, f"j{number}-xxxxx", 6 + number / 10) for number in range(4)]

    def torn(folder: str) -> dict[AttemptFiles, dict[str, int]]:
        if "j1-" in folder:
            raise Unreachable("it is damaged")
        if "j2-" in folder:
            raise PermissionError("not yours")
        return attempt_files(folder)

    monkeypatch.setattr(retention, "attempt_files", torn)
    said: list[str] = []
    duty = RetentionDuty(broker, say=said.append)
    assert {one.view.id for one in duty.once().deleted} == {"j0-xxxxx", "j3-xxxxx"}
    duty.once()
    assert said == [
        "files of j1-xxxxx stay longer than the policy says: it is damaged",
        "files of j2-xxxxx stay longer than the policy says: not yours",
    ]
    monkeypatch.undo()
    assert {one.view.id for one in duty.once().deleted} == {"j1-xxxxx", "j2-xxxxx"}, "tried again"
    assert [left(folder) for folder in folders] == [{"result.txt"}] * 4


def test_what_an_open_job_needs_stays(broker: Broker) -> None:
    folder = ended(broker, "j0-xxxxx", 31)
    needs = Job(name="reader", run="true", after=(Predecessor(job="j0-xxxxx", inputs=("*",)),))
    with broker.store.writing() as tx:
        tx.append("r-xxxxx", [(None, ev.Submitted(job=needs, user="ann", max_duration_seconds=60.0))], NOW)
    assert RetentionDuty(broker, say=print).once().deleted == ()
    assert left(folder) == {"result.txt", "0.log"}
