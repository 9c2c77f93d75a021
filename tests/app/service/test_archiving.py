"""Old events and prices move to files in the run store, and are read there as before; nothing is lost on the way."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.agent.store import ObjectFolder
from broker.app.jobs import jobs
from broker.app.jobs.past_events import JobStory, story
from broker.app.market.offer_rows import OfferFilter
from broker.app.market.price_history import PriceHistories, over
from broker.app.market.price_history import at as at_moment
from broker.app.service.archiving import ArchivedHistory, archive_history
from broker.app.service.duties import KeepingFiles
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, InvalidInput, StoreProblem, Unreachable
from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved, MetricsReported
from broker.core.events.outcomes import Cause, JobState
from broker.core.job.arrays import JobArray, TaskOf
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.runfolder import archive
from broker.store import archive as store_archive
from broker.store.engine.leader import LeaderRole
from broker.store.engine.times import to_micros
from broker.store.market.history import PastChange
from broker.store.market.market_history import ArchivedSeries
from broker.store.records import ArchivedRow, ArchiveFile, ArchiveKind, PastOffer, UnfinishedFile
from tests.actors import ANN, with_clock
from tests.empty_store import empty_store
from tests.store.fields import spot_offer

NOW = datetime(2026, 11, 20, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
MACHINES = ("p4", "p5")
KEEPS = "version: 1\npolicy: short\ndefaults: {keep_events: 60d, keep_prices: 90d}\n"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return empty_store(tmp_path / "store.db")
    return str(request.getfixturevalue("new_postgres_store")())


@pytest.fixture
def broker(new_broker: Callable[[], Broker]) -> Broker:
    broker = with_clock(new_broker(), ManualClock(NOW))
    broker.store.activate_policy({"short.yaml": KEEPS}, by="ann")
    return broker


def ran(broker: Broker, job_id: str, days: float, *, closed: bool = True, task: TaskOf | None = None) -> JobStory:
    """A job that ended so many days ago, with a checkpoint and figures in each of its three hours; its story."""
    at = NOW - days * DAY
    placement = Placement(spot_offer("p5", Money(100), at), 1, Money(1), Money(1), (), None, None, 1.0, 1.0, 0.0)
    with broker.store.writing() as tx:
        submitted = ev.Submitted(job=Job(name=job_id, run="true", task=task), user="ann", max_duration_seconds=60.0)
        requested = ev.LaunchRequested(key=job_id, engine="local", placement=placement)
        tx.append(job_id, [(None, submitted), (1, requested), (1, ev.Launched(handle="h"))], at - 4 * HOUR)
        tx.append(job_id, [(1, ev.MachineUp(since=at - 4 * HOUR))], at - 4 * HOUR)
        for hour in (3, 2, 1):
            saved = CheckpointSaved(checkpoint=f"c{hour}", step=4 - hour, size=1)
            told = MetricsReported(step=4 - hour, metrics={"loss": 1.0 / hour})
            tx.append(job_id, [(1, saved), (1, told)], at - hour * HOUR)
        tx.append(job_id, [(1, ev.AttemptEnded(cause=Cause.COMPLETED)), (1, ev.MachineGone(gone_at=at))], at)
        tx.append(job_id, [(None, ev.JobEnded(state=JobState.SUCCEEDED))], at)
        if closed:
            tx.append(job_id, [(None, ev.JobClosed())], at)
    return told_of(broker, job_id)


def told_of(broker: Broker, job_id: str) -> JobStory:
    return story(broker, jobs.find(broker, job_id))


def in_database(broker: Broker, job_id: str) -> list[str]:
    return [event.body.kind for event in jobs.events(broker, jobs.find(broker, job_id))]


def moved(broker: Broker, *, dry_run: bool = False) -> ArchivedHistory:
    return archive_history(broker, dry_run=dry_run, by=ANN)


def archived_files(broker: Broker, kind: str) -> list[Path]:
    return sorted((Path(str(broker.settings.runs).removeprefix("file://")) / "archive" / kind).glob("*.parquet"))


def test_events_of_jobs_that_ended_long_ago_move_and_are_told_as_before(broker: Broker) -> None:
    stories = {name: ran(broker, name, days) for name, days in (("old-aaaaa", 110), ("new-aaaaa", 40))}
    foretold = moved(broker, dry_run=True)
    assert (foretold.jobs, archived_files(broker, "events")) == (1, [])
    assert moved(broker) == foretold
    assert in_database(broker, "old-aaaaa") == [
        *("launch_requested", "machine_up", "checkpoint_saved", "metrics_reported", "attempt_ended", "job_ended"),
    ], "what reports read stays, of checkpoints and figures the last"
    assert {name: told_of(broker, name) for name in stories} == stories
    assert moved(broker).events == 0, "nothing is left to move"
    assert broker.store.archive.files()[0].rows == foretold.events == len(stories["old-aaaaa"].events) - 6


def test_a_file_has_as_many_jobs_as_fit_into_memory(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    stories = {name: ran(broker, name, days) for name, days in (("a-aaaaa", 112), ("b-aaaaa", 111), ("c-aaaaa", 110))}
    for most, files in ((1, 1), (2 * len(stories["a-aaaaa"].events), 2)):
        monkeypatch.setattr(store_archive, "_ROWS", most)
        due = broker.store.archive.due_events(NOW)
        assert due is not None
        assert len(due.jobs) == files
    assert (moved(broker).jobs, len(archived_files(broker, "events"))) == (3, 2)
    assert {name: told_of(broker, name) for name in stories} == stories


def test_reports_of_tasks_stay_while_others_of_their_array_are_compared_with_them(broker: Broker) -> None:
    with broker.store.writing() as tx:
        whole = Job(name="all", run="true", array=JobArray(range=2))
        begun = ev.Submitted(job=whole, user="ann", max_duration_seconds=60.0)
        tx.append("all-aaaaa", [(None, begun)], NOW - 120 * DAY)
    ran(broker, "old-aaaaa", 110, task=TaskOf(array="all-aaaaa", index=0, count=2))
    assert moved(broker).jobs == 0
    with broker.store.writing() as tx:
        tx.append("all-aaaaa", [(None, ev.JobEnded(state=JobState.SUCCEEDED)), (None, ev.JobClosed())], NOW)
    assert moved(broker).jobs == 1


def test_a_view_whose_events_are_archived_survives_a_rebuild(broker: Broker) -> None:
    ran(broker, "old-aaaaa", 110)
    before = jobs.find(broker, "old-aaaaa")
    moved(broker)
    assert not broker.store.prove().differing
    broker.store.rebuild()
    assert jobs.find(broker, "old-aaaaa") == before


def test_figures_near_the_edge_of_a_month_stay(broker: Broker) -> None:
    edge = (NOW - datetime(2026, 7, 1, 1, 30, tzinfo=UTC)) / DAY
    ran(broker, "old-aaaaa", edge)
    moved(broker)
    assert in_database(broker, "old-aaaaa").count("metrics_reported") == 3


def test_a_damaged_archive_hides_only_what_is_in_it(broker: Broker) -> None:
    ran(broker, "old-aaaaa", 110)
    moved(broker)
    (file,) = archived_files(broker, "events")
    file.write_bytes(file.read_bytes() + b"x")
    found = told_of(broker, "old-aaaaa")
    assert [event.body.kind for event in found.events] == in_database(broker, "old-aaaaa")
    assert found.missing is not None
    assert "was changed" in found.missing


def test_a_run_store_that_fails_leaves_everything_where_it_is(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ran(broker, "old-aaaaa", 110)

    def fails(*_: object) -> None:
        raise Unreachable("no bucket")

    with monkeypatch.context() as patched:
        patched.setattr(archive, "write", fails)
        with pytest.raises(Unreachable):
            KeepingFiles(broker, say=print).once()
    assert len(in_database(broker, "old-aaaaa")) == len(before.events)
    KeepingFiles(broker, say=print).once()
    assert told_of(broker, "old-aaaaa") == before
    assert broker.store.archive.files()


def test_what_the_run_store_has_not_kept_stays(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(broker, "old-aaaaa", 110)
    before = in_database(broker, "old-aaaaa")

    def keeps_half(folder: ObjectFolder, path: str, data: bytes) -> None:
        kept(folder, path, data[: len(data) // 2])

    kept = ObjectFolder.write
    monkeypatch.setattr(ObjectFolder, "write", keeps_half)
    with pytest.raises(BrokerError, match="was changed"):
        moved(broker)
    assert in_database(broker, "old-aaaaa") == before


def test_a_job_that_is_not_closed_stays(broker: Broker) -> None:
    ran(broker, "old-aaaaa", 110, closed=False)
    assert moved(broker).events == 0


def test_rows_are_deleted_once_their_file_would_survive_a_power_cut(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, kept = ran(broker, "old-aaaaa", 110), list[str]()
    fsync, kinds = os.fsync, len(before.events)

    def noted(file: int) -> None:
        kept.append(str(Path(f"/proc/self/fd/{file}").readlink()))
        assert len(in_database(broker, "old-aaaaa")) == kinds, "nothing is deleted yet"
        fsync(file)

    monkeypatch.setattr(os, "fsync", noted)
    moved(broker)
    (file,) = archived_files(broker, "events")
    assert {str(file), str(file.parent), str(file.parents[1])} <= set(kept)


def test_a_disk_that_fails_to_keep_the_file_keeps_the_rows(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ran(broker, "old-aaaaa", 110)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unreachable, match="No space left"):
        moved(broker)
    assert len(in_database(broker, "old-aaaaa")) == len(before.events)


def test_of_two_who_archive_the_same_events_one_is_refused(broker: Broker) -> None:
    before = ran(broker, "old-aaaaa", 110)
    due = broker.store.archive.due_events(NOW)
    assert due is not None
    moved(broker)
    (file,) = broker.store.archive.files()
    with pytest.raises(StoreProblem, match="took over"):
        broker.store.archive.take_out(due, file)
    broker.store.archive.begin(UnfinishedFile(file.path, file.runs))
    (left,) = broker.store.archive.abandon()
    with pytest.raises(StoreProblem, match="took over"):
        broker.store.archive.take_out(due, file)
    broker.store.archive.forget(left)
    broker.store.archive.begin(left)
    with pytest.raises(StoreProblem, match="archived meanwhile"):
        broker.store.archive.take_out(due, file)
    assert told_of(broker, "old-aaaaa") == before
    assert len(broker.store.archive.files()) == 1


def test_a_file_that_lacks_rows_takes_none_out(broker: Broker) -> None:
    before = ran(broker, "old-aaaaa", 110)
    due = broker.store.archive.due_events(NOW)
    assert due is not None
    moment = datetime(2026, 8, 1, tzinfo=UTC)
    path, runs = "archive/events/x.parquet", "file:///runs"
    file = ArchiveFile(ArchiveKind.EVENTS, path, "x", len(due.rows), 1, moment, moment, runs)
    broker.store.archive.begin(UnfinishedFile(path, runs))
    with pytest.raises(StoreProblem, match="nothing was deleted"):
        broker.store.archive.take_out(replace(due, rows=[*due.rows[1:], due.rows[-1]]), file)
    assert (told_of(broker, "old-aaaaa"), broker.store.archive.files()) == (before, [])


@pytest.mark.parametrize("wrong", [KeyboardInterrupt(), StoreProblem("the database is gone")])
def test_what_was_written_but_is_not_on_record_is_deleted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, wrong: BaseException
) -> None:
    before = ran(broker, "old-aaaaa", 110)
    deleted = archive.remove

    def breaks_off(*_: object) -> None:
        raise wrong

    with monkeypatch.context() as patched:
        patched.setattr(store_archive.Archive, "take_out", breaks_off)
        patched.setattr(archive, "remove", breaks_off if isinstance(wrong, KeyboardInterrupt) else deleted)
        with pytest.raises(type(wrong)):
            moved(broker)
    left = archived_files(broker, "events")
    assert len(left) == (1 if isinstance(wrong, KeyboardInterrupt) else 0), "a killed process deletes nothing itself"
    assert moved(broker).left == ()
    (file,) = archived_files(broker, "events")
    assert file not in left
    assert told_of(broker, "old-aaaaa") == before
    assert broker.store.archive.abandon() == []


def test_a_file_that_cannot_be_deleted_is_told_and_tried_again(broker: Broker) -> None:
    lost = UnfinishedFile("archive/events/x.parquet", "nowhere://bucket")
    broker.store.archive.begin(lost)
    assert "nowhere://bucket/archive/events/x.parquet" in moved(broker).left[0]
    assert broker.store.archive.abandon() == [lost]


def test_one_process_archives_at_a_time(broker: Broker) -> None:
    ran(broker, "old-aaaaa", 110)
    with broker.store.lead(LeaderRole.ARCHIVE), pytest.raises(StoreProblem, match="another process archives now"):
        moved(broker)
    assert moved(broker).jobs == 1


def test_the_archive_is_found_after_the_run_store_changed_and_after_it_moved(broker: Broker, tmp_path: Path) -> None:
    before = ran(broker, "old-aaaaa", 110)
    moved(broker)
    (file,) = archived_files(broker, "events")
    new = tmp_path / "new"
    changed = Broker(
        broker.settings.model_copy(update={"runs": new.as_uri()}), broker.registries, broker.account, clock=broker.clock
    )
    assert told_of(changed, "old-aaaaa") == before
    to = new / file.relative_to(file.parents[2])
    to.parent.mkdir(parents=True)
    file.rename(to)
    assert told_of(changed, "old-aaaaa") == before
    to.unlink()
    archive._content.cache_clear()
    missing = told_of(changed, "old-aaaaa").missing or ""
    assert "is missing" in missing
    assert str(new) in missing


def test_a_job_that_was_closed_late_is_archived_after_others_that_ended_later(broker: Broker) -> None:
    ran(broker, "new-aaaaa", 110)
    assert moved(broker).jobs == 1
    ran(broker, "old-aaaaa", 150)
    assert moved(broker).jobs == 1


def test_prices_that_others_delete_meanwhile_are_in_no_file(broker: Broker) -> None:
    for days in (200, 190, 180, 10):
        at = NOW - days * DAY
        broker.store.record_poll("aws", started=at, finished=at, offers=[spot_offer("p5", Money(1000 + days), at)])

    def keep(kind: ArchiveKind, rows: Sequence[ArchivedRow]) -> ArchiveFile:
        broker.store.market.prune(NOW - 90 * DAY)
        return begun(broker, kind, len(rows))

    with pytest.raises(StoreProblem, match="prices changed"):
        broker.store.market.prune(NOW - 90 * DAY, archive=keep)
    assert broker.store.archive.files() == []


def test_a_file_is_read_for_times_before_its_cut_off(broker: Broker) -> None:
    one = spot_offer("p5", Money(1), NOW)
    for days in (200, 190, 100):
        at = NOW - days * DAY
        broker.store.record_poll("aws", started=at, finished=at, offers=[replace(one, price=Money(days), as_of=at)])
    broker.store.market.prune(NOW - 90 * DAY, archive=lambda kind, rows: begun(broker, kind, len(rows)))
    for start, files in ((91, 1), (90, 0)):
        assert len(broker.store.archive.files_of(one, NOW - start * DAY, NOW)[1]) == files
        assert len(broker.store.archive.files_at(NOW - start * DAY)) == files


def begun(broker: Broker, kind: ArchiveKind, rows: int) -> ArchiveFile:
    """A file that says that it was written, of the first series and all times before the last 90 days."""
    path, runs, until = f"archive/{kind}/x.parquet", "file:///runs", NOW - 150 * DAY
    broker.store.archive.begin(UnfinishedFile(path, runs))
    return ArchiveFile(kind, path, "x", rows, 1, NOW - 300 * DAY, until, runs, (1, 1), NOW - 90 * DAY)


def prices(broker: Broker, first: float, last: float) -> PriceHistories:
    return over(broker, OfferFilter(instance_types=MACHINES), NOW - first * DAY, NOW - last * DAY)


def test_price_history_is_read_where_it_is(broker: Broker) -> None:
    for days in range(200, 0, -10):
        at = NOW - days * DAY
        found = [spot_offer(name, Money(1000 + days * n), at, score=days / 300) for n, name in enumerate(MACHINES, 1)]
        broker.store.record_poll("aws", started=at, finished=at, offers=found)
    spans = ((200, 0), (195, 150), (160, 60), (105, 95), (30, 0))
    before = [prices(broker, *span) for span in spans]
    assert [len(one.histories) for one in before] == [2] * 5
    foretold = moved(broker, dry_run=True).prices
    assert moved(broker).prices == foretold
    assert foretold.prices > 10
    assert {file.kind for file in broker.store.archive.files()} == {ArchiveKind.PRICES, ArchiveKind.SIGNALS}
    assert [prices(broker, *span) for span in spans] == before
    assert moved(broker).prices.prices == 0


def test_offers_at_a_moment_are_read_where_they_are(broker: Broker) -> None:
    for days in range(200, 0, -10):
        at = NOW - days * DAY
        found = [spot_offer(name, Money(1000 + days * n), at, score=days / 300) for n, name in enumerate(MACHINES, 1)]
        broker.store.record_poll("aws", started=at, finished=at, offers=found[: 1 if days in (180, 60) else 2])
    asked = [(NOW - days * DAY, known) for days in (205, 195, 180, 175, 150, 95, 60, 5) for known in (False, True)]

    def then(when: datetime, known: bool) -> list[PastOffer]:
        found = at_moment(broker, OfferFilter(), when, when if known else None)
        # The records of old polls, by which an offer was seen last, are deleted.
        return [replace(past, seen=None, offer=replace(past.offer, as_of=NOW)) for past in found]

    before = [then(*moment) for moment in asked]
    assert [len(found) for found in before] == [0, 0, 2, 2, 1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 2, 2]
    moved(broker)
    assert [then(*moment) for moment in asked] == before
    assert not broker.store.market.offers_at(NOW - 195 * DAY), "so the archive told it"


def test_of_the_archive_and_the_store_the_later_state_counts(broker: Broker) -> None:
    for days in (10, 5):
        at = NOW - days * DAY
        broker.store.record_poll("aws", started=at, finished=at, offers=[spot_offer("p5", Money(days), at)])
    older = {1: ArchivedSeries([PastChange(to_micros(NOW - 8 * DAY), 8, 0, None)])}
    for days, price in ((7, 8), (4, 5)):
        (past,) = broker.store.market.offers_at(NOW - days * DAY, older=older)
        assert past.offer.price == Money(price)


def test_plans_and_reports_keep_their_last_month(broker: Broker) -> None:
    for least in (29 * DAY, 0 * DAY):
        with pytest.raises(InvalidInput, match="30d or more"):
            archive_history(broker, keep_prices=least, by=ANN)
        with pytest.raises(InvalidInput, match="30d or more"):
            archive_history(broker, keep_events=least, by=ANN)
