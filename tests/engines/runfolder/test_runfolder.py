"""The broker's side of the run folders."""

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.agent.clock import NodeClock, to_text
from broker.agent.formats import Exit, Spec, attempt_path
from broker.agent.formats import Lease as AgentLease
from broker.agent.journal import AttemptJournal
from broker.agent.signatures import KEY_VARIABLE
from broker.agent.store import ObjectFolder
from broker.core.errors import Unreachable
from broker.core.events.agent_events import (
    CheckpointSaved,
    CheckpointTrouble,
    Claimed,
    CommandStarted,
    NoticeReceived,
    Restored,
)
from broker.core.events.events import Event, LaunchRequested, Submitted
from broker.core.events.lifecycle import fold
from broker.core.events.outcomes import Cause
from broker.core.events.views import JobView
from broker.core.job.jobs import CheckpointPlan, Job
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.clock import ManualClock, ScaledClock
from broker.core.values.money import Money
from broker.engines.runfolder.attempt_keys import AttemptKeys
from broker.engines.runfolder.mailbox import LeaseGrant
from broker.engines.runfolder.run_folders import RunFolders
from broker.engines.runfolder.runfolder import RunFolder
from broker.engines.runfolder.untrusted import MAX_DOCUMENT
from broker.ledger.holds import STOP_GRACE

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
SECRET = "value-of-a-secret"


@pytest.fixture
def runs(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path.as_uri(), "j")


@pytest.fixture
def store(tmp_path: Path, runs: RunFolder) -> ObjectFolder:
    """The agent's hand on the same folder."""
    return ObjectFolder.open((tmp_path / "j").as_uri())


def view_of(job: Job) -> JobView:
    offer = Offer("p", "r", None, "i", "L4", 2, CapacityType.SPOT, Money.usd(1), NOW, "s")
    placement = Placement(offer, job.num_nodes, Money.usd(1), Money.usd(1), (), None, None, 1.0, 1.0, 0.0)
    submitted = Submitted(job=job, user="u", max_duration_seconds=3600)
    request = LaunchRequested(key="j-1", engine="local", placement=placement)
    return fold([Event("j", 1, NOW, None, submitted), Event("j", 2, NOW, 1, request)])


def test_an_empty_folder_says_nothing(runs: RunFolder) -> None:
    state = runs.read_attempt(1)
    assert (state.claims, state.heartbeat, state.journal, state.exit) == ((), None, (), None)
    assert runs.checkpoints() == []
    assert list(runs.logs(1)) == []
    assert runs.verify("0001-000000000001-x") == "it was never finished: it has no manifest"


def test_every_entry_of_the_agent_is_an_event(runs: RunFolder, store: ObjectFolder) -> None:
    journal = AttemptJournal(store, attempt_path(1, "journal.json"), NodeClock())
    journal.append("claimed", host="h")
    journal.append("restored", checkpoint=None, step=None, passed_over=[{"checkpoint": "c", "because": "torn"}])
    journal.append("command_started")
    journal.trouble("checkpoint_trouble", "full")
    journal.checkpoint_saved("c", 5, 100, 0.25)
    journal.append("notice_received", source="s", terminates_at="2026-03-02T12:00:00.000000Z")
    journal.flush()
    entries = runs.read_attempt(1).journal
    kinds = [Claimed, Restored, CommandStarted, CheckpointTrouble, CheckpointSaved, NoticeReceived]
    assert [type(entry.body) for entry in entries] == kinds
    assert entries[-1].body == NoticeReceived(source="s", terminates_at=NOW)
    assert entries[4].body == CheckpointSaved(checkpoint="c", step=5, size=100, seconds=0.25)
    assert runs.read_attempt(1, seen=4).journal == entries[4:]
    assert runs.read_attempt(1, seen=6).journal == ()


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "job_closed"},
        {"kind": "nonsense"},
        {"kind": "claimed", "more": 1},
        {"kind": "checkpoint_saved", "checkpoint": "c", "size": -1},
        {"kind": "checkpoint_saved", "checkpoint": "c", "step": 2**70},
        {"kind": "checkpoint_saved", "checkpoint": "c" * 20_000},
        "no object",
        17,
    ],
    ids=str,
)
def test_behind_what_is_not_the_agents_to_write_nothing_is_believed(
    bad: object, runs: RunFolder, store: ObjectFolder
) -> None:
    at = {"at": "2026-03-02T12:00:00Z"}
    good, wrong = {"kind": "command_started", **at}, {**bad, **at} if isinstance(bad, dict) else bad
    store.write_json(attempt_path(1, "journal.json"), {"entries": [good, wrong, good]})
    assert [type(entry.body) for entry in runs.read_attempt(1).journal] == [CommandStarted]
    assert runs.read_attempt(1, seen=1).journal == ()


DEEP = b'{"a":' * 100_000


@pytest.mark.parametrize("content", [b"{half", b"[]", b"\xff\xfe", b"", DEEP, b"{" + b" " * MAX_DOCUMENT + b"}"])
@pytest.mark.parametrize("name", ["journal.json", "heartbeat.json", "exit.json", "claim.json"])
def test_what_is_no_document_counts_as_not_written(
    name: str, content: bytes, runs: RunFolder, store: ObjectFolder
) -> None:
    store.write(attempt_path(1, name), content)
    found = runs.read_attempt(1)
    assert (found.journal, found.heartbeat, found.exit, found.claims) == ((), None, None, ())
    assert runs.exits(1) == {}


def test_how_it_ended(runs: RunFolder, store: ObjectFolder) -> None:
    for cause in Cause:
        store.write_json(attempt_path(1, "exit.json"), Exit(cause.value, NOW, 1, "why", 7).to_json())
        ending = runs.read_attempt(1).exit
        assert ending is not None
        assert (ending.cause, ending.at, ending.exit_status, ending.step) == (cause, NOW, 1, 7)
    store.write_json(attempt_path(1, "exit.json"), Exit("unheard_of", NOW).to_json())
    assert runs.read_attempt(1).exit is None


def test_a_field_that_cannot_be_read_does_not_hide_the_others(runs: RunFolder, store: ObjectFolder) -> None:
    told = Exit(Cause.PREEMPTED.value, NOW).to_json()
    strange = {"step": "abc", "exit_status": "x", "evidence": "line\x1b[2J" + "e" * 9000}
    store.write_json(attempt_path(1, "exit.json"), {**told, **strange})
    ending = runs.read_attempt(1).exit
    assert ending is not None
    assert (ending.cause, ending.at, ending.exit_status, ending.step) == (Cause.PREEMPTED, NOW, None, None)
    assert ending.evidence.startswith("line [2Jee")
    assert len(ending.evidence) == 2000
    heartbeat = {"at": to_text(NOW), "phase": ["running"], "step": -4, "total": True}
    store.write_json(attempt_path(1, "heartbeat.json"), heartbeat)
    found = runs.read_attempt(1).heartbeat
    assert found is not None
    assert (found.at, found.phase, found.step, found.total) == (NOW, "", None, None)


def test_logs_are_lines_over_the_seams_of_the_pieces(runs: RunFolder, store: ObjectFolder) -> None:
    store.write(attempt_path(1, "logs/0-000000.log"), b"one\ntw")
    store.write(attempt_path(1, "logs/0-000001.log"), b"o\n\nfour")
    store.write(attempt_path(1, "logs/1-000000.log"), b"another rank\n")
    assert list(runs.logs(1)) == ["one", "two", "", "four"]
    assert list(runs.logs(1, rank=1)) == ["another rank"]


def test_a_store_out_of_reach_is_retry_later(tmp_path: Path, runs: RunFolder) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unreachable):
        RunFolder((tmp_path / "file").as_uri(), "j")
    (tmp_path / "j" / "attempts").write_text("in the way")
    with pytest.raises(Unreachable, match=r"cannot write attempts/1/lease\.json") as caught:
        runs.write_lease(1, AgentLease())
    assert "GPUBROKER_RUNS" in caught.value.hint


def test_the_reconcilers_view(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    folders = RunFolders(tmp_path.as_uri(), clock)
    job = Job(
        name="n", run="python3 train.py", setup="make", envs={"A": "1"}, num_nodes=3,
        secrets=("TOKEN",), checkpoint=CheckpointPlan(keep=5),
    )  # fmt: skip
    view = view_of(job)
    attempt = view.attempts[0]
    until = NOW + timedelta(hours=1)
    folders.prepare(view, attempt, LeaseGrant(until))
    assert folders.url(view, attempt) == f"{tmp_path.as_uri()}/j/attempts/1"
    at = tmp_path / "j" / "attempts" / "1"
    spec = Spec.from_json(json.loads((at / "spec.json").read_text()))
    assert (spec.job_id, spec.attempt, spec.key, spec.nodes, spec.gpus, spec.keep) == ("j", 1, "j-1", 3, 2, 5)
    assert (spec.command, spec.setup, spec.envs) == ("python3 train.py", "make", {"A": "1"})
    assert spec.clock == NodeClock()
    assert spec.secrets == ("TOKEN",)
    assert 2 * spec.grace + 2 * spec.intervals.mail < STOP_GRACE.total_seconds(), (
        "stopping fits into what is held for it"
    )
    folders.write_lease(view, attempt, LeaseGrant(until, stop=Cause.MAX_COST))
    lease = AgentLease.from_json(json.loads((at / "lease.json").read_text()))
    assert (lease.paid_until, lease.stop, lease.renewed_at) == (until, "max_cost", NOW)
    node = folders.read(view, attempt)
    assert (node.journal, node.heartbeat_at, node.exit) == ((), None, None)


def test_a_launch_passes_on_the_attempts_key_and_the_buckets_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = AttemptKeys(lambda: "root")
    folders = RunFolders(tmp_path.as_uri(), ManualClock(NOW), keys=keys)
    view = view_of(Job(name="n", run="true"))
    attempt = view.attempts[0]
    assert folders.variables(view, attempt) == {KEY_VARIABLE: keys.of("j-1")}
    monkeypatch.setattr("broker.engines.runfolder.run_folders.bucket_region", lambda url: "eu-central-1")
    assert folders.variables(view, attempt) == {KEY_VARIABLE: keys.of("j-1"), "GPUBROKER_RUNS_REGION": "eu-central-1"}


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"[]",
        b"{}",
        b'{"paid_until": null}',
        b'{"paid_until": null, "stop": "nobody"}',
        b"[" * 9000,
        b" " * (9 << 20),
    ],
    ids=["nothing", "a list", "empty", "unsigned", "unknown", "deep", "large"],
)
def test_a_lease_over_which_a_node_has_written_is_none_and_is_written_again(tmp_path: Path, written: bytes) -> None:
    """A broker that began later reads the lease before it writes one: it must not believe that one, nor stumble."""
    folders = RunFolders(tmp_path.as_uri(), ManualClock(NOW), keys=AttemptKeys(lambda: "root"))
    view = view_of(Job(name="n", run="true"))
    attempt = view.attempts[0]
    stop = LeaseGrant(stop=Cause.CANCELLED_BY_USER)
    folders.write_lease(view, attempt, stop)
    assert folders.lease(view, attempt) == stop
    (tmp_path / "j" / "attempts" / "1" / "lease.json").write_bytes(written)
    assert folders.lease(view, attempt) is None


def test_an_old_heartbeat_is_dated_by_the_store_alone(tmp_path: Path) -> None:
    folders = RunFolders(tmp_path.as_uri(), ScaledClock(datetime.now(UTC), NOW, 2.0))
    view = view_of(Job(name="n", run="true"))
    attempt = view.attempts[0]
    assert folders.read(view, attempt).silent == timedelta(0), "there is none"
    folder = tmp_path / "j" / "attempts" / "1"
    folder.mkdir(parents=True, exist_ok=True)
    heartbeat = folder / "heartbeat.json"
    heartbeat.write_text('{"at": "2036-01-01T00:00:00+00:00"}')
    for wall, least in ((60, 0), (7200, 2 * 7200)):
        at = time.time() - wall
        os.utime(heartbeat, (at, at))
        assert -1 <= folders.read(view, attempt).silent.total_seconds() - least < 120


def test_samples_that_no_accelerator_gives_do_not_count(runs: RunFolder, store: ObjectFolder) -> None:
    good = '{"at": "2026-03-02T12:00:00+00:00", "gpus": [{"utilisation": 50}]}'
    odd = ["1e999", "-1", "101", "NaN", "9" * 400, '"x"', "[]"]
    lines = [good.replace("50", value) for value in odd] + ["[" * 9000, "", "null", good]
    store.write(attempt_path(1, "metrics.jsonl"), "\n".join(lines).encode())
    assert [one.percent for one in runs.usage(1)] == [50.0]
    store.write(attempt_path(1, "metrics.jsonl"), (good + "\n").encode() * 200_000)
    assert runs.usage(1) == [], "larger than what an agent writes"
    store.write(attempt_path(1, "logs/0-000000.log"), b"x" * (3 << 20))
    assert sum(map(len, runs.logs(1))) <= 2 << 20


def test_a_sandbox_clock_goes_along(tmp_path: Path) -> None:
    clock = ScaledClock(datetime.now(UTC), NOW, 240.0)
    folders = RunFolders(tmp_path.as_uri(), clock)
    view = view_of(Job(name="n", run="true"))
    spec = folders.spec(view, view.attempts[0])
    before, there, after = clock.now(), spec.clock.now(), clock.now()
    assert before - timedelta(seconds=1) <= there <= after + timedelta(seconds=1)
    assert spec.intervals.mail < 1
    assert 2 * spec.grace * clock.scale < STOP_GRACE.total_seconds()
    assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
