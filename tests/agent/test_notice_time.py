"""The time between a notice and the end: how it is shared, and what is said where a checkpoint does not fit into it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from broker.agent.clock import NodeClock, to_text
from broker.agent.journal import AttemptJournal
from broker.agent.notices import NoticeTime, PolledSource, command_seconds
from broker.agent.store import ObjectFolder
from broker.agent.supervise import INTERRUPTED
from broker.core.events.agent_events import NoticeTooShort, Restored
from broker.core.events.outcomes import Cause
from tests.agent.node import SAVE, Node

SECONDS = st.floats(0, 1e6)


@given(SECONDS, SECONDS)
def test_the_command_gets_a_fifth_at_least_and_half_at_most(left: float, upload: float) -> None:
    assert left * 0.2 <= command_seconds(left, upload) <= left / 2 + 1e-9


def test_a_long_upload_gets_more_of_the_time() -> None:
    assert command_seconds(30, 0) == 15
    assert command_seconds(30, 10) == 15
    assert command_seconds(30, 16) == 10
    assert command_seconds(30, 23) == 6, "the least there is"
    assert command_seconds(30, 25) == 15, "it fits nowhere; the command may as well take its time"


@pytest.fixture
def journal() -> AttemptJournal:
    return AttemptJournal(ObjectFolder(MemoryStore()), "journal.json", NodeClock())


def entries(journal: AttemptJournal) -> list[dict[str, Any]]:
    journal.flush()
    return list((journal._store.read_json("journal.json") or {}).get("entries", []))


def asked(*gives: float | None) -> list[PolledSource]:
    return [PolledSource(f"cloud {index}", lambda: None, seconds) for index, seconds in enumerate(gives)]


def test_what_does_not_fit_is_said_once_and_again_when_it_has_changed(journal: AttemptJournal) -> None:
    time = NoticeTime(asked(120.0, None, 30.0), journal)
    for seconds in (5.0, 23.0, 45.0, 50.0, 4.0, 25.0):
        time.record_upload("0001-1", 14_000_000_000, seconds)
    said = entries(journal)
    assert [entry["seconds"] for entry in said] == [45.0, 25.0]
    assert (said[0]["source"], said[0]["notice_seconds"]) == ("cloud 2", 30.0), "the shortest counts"
    assert time.upload == 25.0


def test_where_nothing_is_promised_nothing_is_said(journal: AttemptJournal) -> None:
    for sources in (asked(), asked(None)):
        NoticeTime(sources, journal).record_upload("0001-1", 1, 1e6)
    assert entries(journal) == []


def test_a_checkpoint_too_large_for_the_notice_is_told_beforehand(node: Node) -> None:
    """A machine whose notice is shorter than any upload takes."""
    node.spec(SAVE + "echo up; save step_1; exec sleep 300")
    environment = {"GPUBROKER_NOTICE_FILE": str(node.folder / "notice.json"), "GPUBROKER_NOTICE_SECONDS": "0.000001"}
    node.start(env=environment)
    told = node.until_event("notice_too_short")
    assert isinstance(told, NoticeTooShort)
    assert (told.source, told.size) == ("notice file", 7)
    assert told.notice_seconds == 0.000001  # `seconds` is rounded to milliseconds, and may be 0
    (saved,) = node.runs.checkpoints()
    assert told.checkpoint == saved.id


@pytest.mark.system
def test_taken_back_before_it_is_uploaded_it_falls_back_to_the_one_before(node: Node) -> None:
    """The store takes nothing more once the notice has come, so what is saved then never gets there."""
    notice = node.folder / "notice.json"
    saves = f"{SAVE} save step_1; trap 'save step_2; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    node.spec(saves, grace=60.0)
    agent = node.start(env={"GPUBROKER_NOTICE_FILE": str(notice)})
    node.until_said("up")
    node.until_event("checkpoint_saved")
    (first,) = node.runs.checkpoints()
    attic = _in_the_way(node)
    at = datetime.now(UTC) + timedelta(seconds=12)
    notice.write_text(json.dumps({"source": "the cloud", "terminates_at": to_text(at)}))
    assert agent.wait(240) == INTERRUPTED
    ending = node.ending()
    assert ending.cause is Cause.PREEMPTED
    assert "not saved: step_2" in ending.evidence
    _out_of_the_way(node, attic)
    assert node.run("cat $GPUBROKER_CHECKPOINT_DIR/*", attempt=2) == 0
    restored = node.events(2)[1]
    assert isinstance(restored, Restored)
    assert (restored.checkpoint, restored.step) == (first.id, 1)
    assert node.output(2) == ["step_1"]


def _in_the_way(node: Node) -> Path:
    """A file where checkpoints go, so that every upload fails."""
    checkpoints, attic = node.job / "checkpoints", node.folder / "attic"
    checkpoints.rename(attic)
    checkpoints.write_text("in the way")
    return attic


def _out_of_the_way(node: Node, attic: Path) -> None:
    (node.job / "checkpoints").unlink()
    attic.rename(node.job / "checkpoints")
