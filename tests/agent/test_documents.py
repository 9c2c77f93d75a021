"""The small parts: documents, clock, journal, output, store errors, accelerators."""

import errno
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import LocalStore, MemoryStore

from broker.agent import gpu
from broker.agent.claims import Claim
from broker.agent.clock import NodeClock, from_text, to_text
from broker.agent.endings import CommandEnd, StopOrder, disk_failure
from broker.agent.formats import BadDocument, Exit, Intervals, Lease, LeaseIdleLimit, Spec, rank_document, rank_of
from broker.agent.journal import AttemptJournal
from broker.agent.output import PIECE, OutputUploader
from broker.agent.store import ObjectFolder, StoreTrouble, split_folder
from broker.core.events.agent_events import FROM_AGENT
from broker.core.events.outcomes import OUTCOMES, Cause
from broker.core.values.clock import ScaledClock

times = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
names = st.text(min_size=1, max_size=20)


@given(times)
def test_times(at: datetime) -> None:
    assert from_text(to_text(at)) == at
    assert from_text(at.isoformat()) == at


def test_a_time_without_an_offset_is_none() -> None:
    with pytest.raises(ValueError, match="without an offset"):
        from_text("2026-01-01T00:00:00")


@given(times, times, st.floats(0.1, 1000))
def test_the_clock_is_the_brokers(origin: datetime, starts_at: datetime, scale: float) -> None:
    node, core = NodeClock(origin, starts_at, scale), ScaledClock(origin, starts_at, scale)
    wall = origin + timedelta(seconds=10)
    assert node.at(wall) == starts_at + timedelta(seconds=10) * scale
    if scale == 1:
        assert abs(node.now() - core.now()) < timedelta(minutes=4)
    assert NodeClock.from_json(Spec("j", 1, "k", "c", clock=node).to_json()["clock"]) == node


@given(
    st.builds(
        Spec,
        job_id=names, attempt=st.integers(1, 9999), key=names, command=names, nodes=st.integers(1, 64),
        setup=st.none() | names, envs=st.dictionaries(names, names), gpus=st.integers(0, 8),
        keep=st.integers(1, 9), grace=st.floats(0, 1000),
        intervals=st.builds(Intervals, scan=st.floats(0.01, 60)),
    )
)  # fmt: skip
def test_a_spec_is_read_as_it_was_written(spec: Spec) -> None:
    assert Spec.from_json(spec.to_json()) == spec


idle = st.lists(st.builds(LeaseIdleLimit, st.floats(0, 100), st.floats(0, 9e9), names), max_size=3).map(tuple)


@given(
    st.builds(Lease, st.none() | times, st.none() | times, st.none() | names, st.none() | st.floats(0, 9e9), idle=idle)
)
def test_a_lease_is_read_as_it_was_written(lease: Lease) -> None:
    assert Lease.from_json(lease.to_json()) == lease


@given(times, st.integers(0, 99))
def test_claims_and_exits_are_read_as_they_were_written(at: datetime, number: int) -> None:
    claim = Claim(number, "host", "10.0.0.1", number, "77", "nonce", "gang", at)
    assert Claim.from_json(claim.to_json()) == claim
    ending = Exit("completed", at, number, "evidence", number, "checkpoint")
    assert Exit.from_json(ending.to_json()) == ending
    assert rank_of(rank_document("exit.json", number), "exit.json") == number


@pytest.mark.parametrize("document", [{}, {"job_id": "j", "attempt": "x"}, {"intervals": {"scan": 0}}])
def test_half_a_spec_is_none(document: dict[str, object]) -> None:
    with pytest.raises(BadDocument, match=r"spec\.json"):
        Spec.from_json(
            {"job_id": "j", "attempt": 1, "key": "k", "command": "c", **document}
            if "intervals" in document
            else document
        )


def test_a_lease_that_says_nothing_is_not_unlimited() -> None:
    for document in ({}, {"version": 1}, {"stop": None}):
        with pytest.raises(BadDocument):
            Lease.from_json(document)
    assert Lease.from_json({"paid_until": None}) == Lease()


def test_when_a_lease_is_over() -> None:
    at, second = datetime(2026, 1, 1, tzinfo=UTC), timedelta(seconds=1)
    assert Lease().over(at) is None
    assert Lease(paid_until=at + second).over(at) is None
    for lease, cause in (
        (Lease(paid_until=at), "paid_until"),
        (Lease(ends_at=at), "max_duration"),
        (Lease(stop="moved", paid_until=at), "moved"),
        (Lease(max_unattended=5), "unattended"),
    ):
        over = lease.over(at, silent=6)
        assert over is not None
        assert over[0] == cause
    assert Lease(max_unattended=5).over(at, silent=4) is None
    assert Lease(max_unattended=5, renewed_at=at - 9 * second).over(at) is None, "the broker's clock says nothing here"


@pytest.mark.parametrize(
    ("ended", "cause", "status"),
    [
        (CommandEnd(0, clean=True), Cause.COMPLETED, 0),
        (CommandEnd(3), Cause.EXIT_STATUS, 3),
        (CommandEnd(-9), Cause.KILLED_BY_SIGNAL, 137),
        (CommandEnd(139), Cause.KILLED_BY_SIGNAL, 139),
        (CommandEnd(255), Cause.EXIT_STATUS, 255),
        (CommandEnd(None, could_not_start="no bash"), Cause.CANNOT_START, None),
        (disk_failure("files", OSError(errno.EROFS, "read-only")), Cause.CANNOT_START, None),
        (disk_failure("files", OSError(errno.ENOSPC, "no space")), Cause.MACHINE_LOST, None),
        (disk_failure("files", OSError(errno.EDQUOT, "over quota")), Cause.MACHINE_LOST, None),
        (CommandEnd(0, StopOrder("preempted", "notice")), Cause.PREEMPTED, 0),
        (CommandEnd(-15, StopOrder("max_cost", "the broker requested it")), Cause.MAX_COST, 143),
        (CommandEnd(2, during="setup"), Cause.EXIT_STATUS, 2),
    ],
)
def test_causes_are_those_of_the_lifecycle(ended: CommandEnd, cause: Cause, status: int | None) -> None:
    found, code, evidence = ended.cause(["last words"], [])
    assert (Cause(found), code) == (cause, status)
    assert Cause(found) in OUTCOMES
    assert evidence or cause is Cause.COMPLETED


def test_journal_entries_are_the_brokers_events_and_stay_where_they_are() -> None:
    store = ObjectFolder(MemoryStore())
    journal = AttemptJournal(store, "journal.json", NodeClock())
    journal.append("claimed", host="h")
    journal.trouble("checkpoint_trouble", "full")
    journal.trouble("checkpoint_trouble", "full")
    journal.flush()
    before = (store.read_json("journal.json") or {})["entries"]
    for number in range(3000):
        journal.checkpoint_saved(f"c{number}", number, 1, 0.1)
    journal.flush()
    entries = (store.read_json("journal.json") or {})["entries"]
    assert entries[:2] == before
    assert len(entries) < 600, "thinned out"
    journal.close()
    journal.flush()
    assert (store.read_json("journal.json") or {})["entries"][-1]["step"] == 2999, "the last one is always told"
    kinds = {body.model_fields["kind"].default for body in FROM_AGENT}
    assert {entry["kind"] for entry in entries} <= kinds


def test_a_command_that_prints_without_end_fills_neither_disk_nor_store(tmp_path: Path) -> None:
    store, file = ObjectFolder(MemoryStore()), tmp_path / "output.log"
    uploader = OutputUploader(store, 1, 0, file, keep=4 * PIECE)
    line = b"x" * 1023 + b"\n"
    with file.open("ab", buffering=0) as command:
        for _ in range(10):
            command.write(line * 2048)  # two pieces
            uploader.upload()
        assert file.stat().st_size == 20 * PIECE, "offsets stay what they were"
        assert file.stat().st_blocks * 512 <= 5 * PIECE
        assert store.files("attempts/1/logs") == [f"0-{piece:06d}.log" for piece in range(16, 20)]
        command.write(b"the end\n")
    uploader.upload()
    assert store.read("attempts/1/logs/0-000020.log") == b"the end\n"


def test_a_store_that_is_away_does_not_let_the_output_fill_the_disk(tmp_path: Path) -> None:
    file = tmp_path / "output.log"
    file.write_bytes(b"y" * 8 * PIECE)
    gone = tmp_path / "gone"
    gone.mkdir()
    store = ObjectFolder(LocalStore(gone))
    gone.rmdir()
    gone.write_text("a file where the folder was")
    uploader = OutputUploader(store, 1, 0, file, keep=2 * PIECE)
    with pytest.raises(StoreTrouble):
        uploader.upload()
    assert file.stat().st_blocks * 512 <= 3 * PIECE


def test_stores_say_what_failed_without_saying_secrets(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreTrouble, match="cannot open the run folder"):
        ObjectFolder.open((tmp_path / "file" / "runs").as_uri())
    with pytest.raises(StoreTrouble, match="cannot open the run folder"):
        ObjectFolder.open("gopher://somewhere/runs")
    store = ObjectFolder.open((tmp_path / "runs").as_uri())
    (tmp_path / "runs" / "a").write_text("")
    with pytest.raises(StoreTrouble, match="cannot write a/b") as caught:
        store.write("a/b", b"")
    assert "\n" not in str(caught.value)


def test_a_signed_url_keeps_its_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError("GET https://store/x?sig=SECRET failed\nmore")

    monkeypatch.setattr("obstore.get", fail)
    with pytest.raises(StoreTrouble, match=r"cannot read x: GET https://store/x\?… failed$"):
        ObjectFolder(MemoryStore()).read("x")


def test_create_is_once(tmp_path: Path) -> None:
    for store in (ObjectFolder(MemoryStore()), ObjectFolder.open(tmp_path.as_uri())):
        assert store.create("x", b"1")
        assert not store.create("x", b"2")
        assert store.read("x") == b"1"
        store.delete("x")
        store.delete("x")
        assert store.read("x") is None
        assert not store.exists("x")


def test_the_attempts_folder_names_job_and_number() -> None:
    assert split_folder("s3://bucket/runs/job/attempts/12/") == ("s3://bucket/runs/job", 12)
    with pytest.raises(ValueError, match="not the folder of an attempt"):
        split_folder("s3://bucket/runs/job")


def test_accelerators_as_the_driver_tells_them() -> None:
    text = "0, 97, 70123, 143771, 655.12\n1, [N/A], 4, 143771, [Not Supported]\nno devices\n"
    first, second = gpu.parse(text)
    assert (first.index, first.utilisation, first.memory_used, first.memory_total, first.power) == (
        0,
        97,
        70123,
        143771,
        655.12,
    )
    assert (second.utilisation, second.power) == (None, None)
