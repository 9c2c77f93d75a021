"""Which jobs need their snapshot: whatever is open, can be resumed or left results; and what pruning tells."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.agent.source_tree import tree_path
from broker.agent.store import ObjectFolder
from broker.app.jobs.pruning import Prunable, delete_prunable, find_prunable
from broker.app.jobs.snapshots import check_snapshot_exists, take_snapshot
from broker.app.service.duties import RetentionDuty
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput
from broker.core.events import events as ev
from broker.core.events.outcomes import JobState
from broker.core.job.jobs import Job, Predecessor
from broker.core.values.clock import ManualClock
from broker.engines.runfolder.retention import stored_checkpoints
from tests.actors import with_clock

ANN = Actor("ann")
DAY = timedelta(days=1)
NOW = datetime.now(UTC)


@pytest.fixture
def clock() -> ManualClock:
    """Runs ahead of the run store's, so that what is written now is days old."""
    return ManualClock(NOW + 10 * DAY)


@pytest.fixture
def broker(new_broker: Callable[[], Broker], clock: ManualClock) -> Broker:
    return with_clock(new_broker(), clock)


def submitted(broker: Broker, folder: Path, job_id: str, text: str, user: str = "ann") -> Job:
    """A job on record with a file of its own."""
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(text)
    (folder / "shared.py").write_text("shared")
    job = take_snapshot(broker, Job(name=job_id, run="true", workdir=str(folder)), by=Actor(user))
    with broker.store.writing() as tx:
        body = ev.Submitted(job=job, user=user, max_duration_seconds=60.0)
        tx.append(job_id, [(None, body)], NOW)
    return job


def end(broker: Broker, job_id: str, *, closed: bool = True) -> None:
    with broker.store.writing() as tx:
        ended = (None, ev.JobEnded(state=JobState.FAILED))
        tx.append(job_id, [ended, (None, ev.JobClosed())] if closed else [ended], NOW)


def pool_of_job(broker: Broker, job: Job) -> ObjectFolder:
    assert job.snapshot is not None
    return ObjectFolder.open(f"{broker.settings.runs_url.rstrip('/')}/{job.snapshot.pool}")


def lies_there(broker: Broker, job: Job) -> bool:
    assert job.snapshot is not None
    return pool_of_job(broker, job).exists(tree_path(job.snapshot.trees[0].tree))


def left(broker: Broker, job_id: str, path: str) -> None:
    file = Path(broker.settings.runs_url.removeprefix("file://")) / job_id / path
    file.parent.mkdir(parents=True)
    file.write_text("x")


def prune(broker: Broker, by: Actor = ANN) -> Prunable:
    return delete_prunable(broker, broker.clock.now() - DAY, by=by)


def test_what_no_job_needs_goes_and_its_bytes_are_told(broker: Broker, tmp_path: Path) -> None:
    done = submitted(broker, tmp_path / "a", "a-xxxxx", "12345")
    running = submitted(broker, tmp_path / "b", "b-xxxxx", "1234567")
    end(broker, "a-xxxxx")
    (would,) = find_prunable(broker, broker.clock.now() - DAY, by=ANN).snapshots
    assert sorted(would.found.contents.values()) == [5], "the other content is shared"
    assert lies_there(broker, done)
    gone = prune(broker)
    assert gone.size == would.found.size == gone.snapshots[0].found.size
    assert (lies_there(broker, done), lies_there(broker, running)) == (False, True)
    assert not prune(broker)
    with pytest.raises(InvalidInput, match="no longer kept"):
        check_snapshot_exists(broker, done)
    check_snapshot_exists(broker, running)


@pytest.mark.parametrize("path", ["attempts/1/outputs/best.pt", "checkpoints/0001-000000000001-step_1/manifest.json"])
def test_a_job_with_a_result_or_a_checkpoint_keeps_its_files(broker: Broker, tmp_path: Path, path: str) -> None:
    job = submitted(broker, tmp_path / "a", "a-xxxxx", "1")
    end(broker, "a-xxxxx")
    left(broker, "a-xxxxx", path)
    assert not prune(broker).snapshots
    assert lies_there(broker, job)


def test_a_job_that_is_not_closed_or_that_an_open_one_needs_keeps_its_files(broker: Broker, tmp_path: Path) -> None:
    jobs = [submitted(broker, tmp_path / name, f"{name}-xxxxx", name) for name in ("a", "b")]
    end(broker, "a-xxxxx", closed=False)
    end(broker, "b-xxxxx")
    needs = Job(name="reader", run="true", after=(Predecessor(job="b-xxxxx", inputs=("*",)),))
    with broker.store.writing() as tx:
        tx.append("r-xxxxx", [(None, ev.Submitted(job=needs, user="ann", max_duration_seconds=60.0))], NOW)
    assert not prune(broker).snapshots
    assert all(lies_there(broker, job) for job in jobs)


def test_a_retry_keeps_the_files_of_the_job_that_it_repeats(broker: Broker, tmp_path: Path) -> None:
    job = submitted(broker, tmp_path / "a", "a-xxxxx", "1")
    end(broker, "a-xxxxx")
    with broker.store.writing() as tx:
        tx.append("again-xxxxx", [(None, ev.Submitted(job=job, user="ann", max_duration_seconds=60.0))], NOW)
    assert not prune(broker).snapshots


def test_the_files_of_a_job_of_the_last_hour_are_neither_shown_nor_deleted(
    broker: Broker, tmp_path: Path, clock: ManualClock
) -> None:
    job = submitted(broker, tmp_path / "a", "a-xxxxx", "1")
    again = ev.Submitted(job=job, user="ann", max_duration_seconds=60.0)
    with broker.store.writing() as tx:
        tx.append("again-xxxxx", [(None, again)], clock.now())
    end(broker, "again-xxxxx")
    end(broker, "a-xxxxx")
    assert not find_prunable(broker, clock.now() + DAY, by=ANN)
    assert not delete_prunable(broker, clock.now() + DAY, by=ANN)
    assert lies_there(broker, job)


def test_each_prunes_their_own_and_a_folder_that_cannot_be_read_keeps_no_other(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    of_bob = submitted(broker, tmp_path / "b", "b-xxxxx", "1", user="bob")
    bad, good = (submitted(broker, tmp_path / name, f"{name}-xxxxx", name) for name in ("bad", "good"))
    for job in ("b-xxxxx", "bad-xxxxx", "good-xxxxx"):
        end(broker, job)
    looked = stored_checkpoints

    def torn(folder: str) -> object:
        if "bad-" in folder:
            raise PermissionError("not yours")
        return looked(folder)

    monkeypatch.setattr("broker.app.jobs.retention.stored_checkpoints", torn)
    monkeypatch.setattr("broker.app.jobs.pruning.stored_checkpoints", torn)
    done = prune(broker)
    assert done.trouble == {"bad-xxxxx": "not yours"}
    assert [lies_there(broker, job) for job in (of_bob, bad, good)] == [True, True, False]


def test_by_the_policy_alone_files_go_when_their_time_is_over(
    broker: Broker, tmp_path: Path, clock: ManualClock
) -> None:
    job = submitted(broker, tmp_path / "a", "a-xxxxx", "1")
    end(broker, "a-xxxxx")
    RetentionDuty(broker, say=print).once()
    assert lies_there(broker, job), "no policy says a time"
    policy = "version: 1\npolicy: short\ndefaults: {keep_snapshots: 30d}\n"
    broker.store.activate_policy({"short.yaml": policy}, by="ann")
    RetentionDuty(broker, say=print).once()
    assert lies_there(broker, job)
    clock.advance(21 * DAY)
    RetentionDuty(broker, say=print).once()
    assert not lies_there(broker, job)
