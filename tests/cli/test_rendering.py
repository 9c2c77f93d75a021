"""The small things everything is rendered with: documents, words, tables, events in sentences."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from rich.console import Console
from rich.text import Text

from broker.app.documents import plain
from broker.app.jobs import reasons, story
from broker.app.jobs.reasons import program_name
from broker.cli.jobs import job_view
from broker.cli.render import formats
from broker.cli.render.tables import Column, Trimmed, build_cell_table, hanging
from broker.cli.terminal import to_json
from broker.core.events import events as ev
from broker.core.events.agent_events import (
    CheckpointSaved,
    CheckpointsMissing,
    CheckpointTrouble,
    Claimed,
    CommandStarted,
    MetricsReported,
    NoticeReceived,
    NoticeTooShort,
    OutputsSaved,
    OutputTrouble,
    ResourcesUsed,
    Restored,
    StandsBy,
    TokensServed,
)
from broker.core.events.events import Event
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.wait_reasons import (
    AttemptStopped,
    Cancelled,
    Completed,
    EndReason,
    HoldTrigger,
    NothingFits,
    PredecessorFailed,
    RulesDeny,
    StopReason,
    TasksEnded,
    WaitReason,
)
from broker.core.records import RecordOfKind
from broker.core.values.money import Money
from tests.strategies import STOP_REASONS, end_reasons, wait_reasons

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Colour(StrEnum):
    RED = "red"


@dataclass
class Thing:
    price: Money
    at: datetime


def test_documents_write_values_one_way() -> None:
    berlin = timezone(timedelta(hours=1))
    document = {
        "thing": Thing(Money.usd("1234.5"), datetime(2026, 1, 2, 3, 4, tzinfo=berlin)),
        "kind": Colour.RED,
        "for": timedelta(minutes=2),
        "exactly": timedelta(milliseconds=1500),
        "path": Path("a/b"),
        Colour.RED: (1, None, True),
        "nan": float("nan"),
    }
    assert plain(document) == {
        "thing": {"price": "1234.50", "at": "2026-01-02T02:04:00Z"},
        "kind": "red",
        "for": 120,
        "exactly": 1.5,
        "path": "a/b",
        "red": [1, None, True],
        "nan": None,
    }
    assert to_json({"ü": 1}) == '{\n  "ü": 1\n}'
    with pytest.raises(TypeError):
        plain(object())


@pytest.mark.parametrize(
    ("time", "said"),
    [
        (timedelta(seconds=8), "8s"),
        (timedelta(minutes=3, seconds=12), "3m 12s"),
        (timedelta(hours=1, minutes=5), "1h 05m"),
        (timedelta(days=2, hours=3), "2d 3h"),
        (timedelta(seconds=-90), "-1m 30s"),
        (None, "–"),
    ],
)
def test_lengths(time: timedelta | None, said: str) -> None:
    assert formats.length(time) == said


def test_amounts_never_round_to_nothing() -> None:
    assert formats.money(Money.usd("1234.567")) == "$1,234.57"
    assert formats.money(Money.usd("0.0001")) == "$0.0001"
    assert formats.money(Money(3)) == "$0.000003"
    assert formats.money(Money.ZERO) == "$0.00"
    assert formats.money(None) == "–"
    assert formats.rate(Money.usd("0.3456")) == "$0.346"
    assert formats.rate(Money.usd("12.3456")) == "$12.35"


def test_points_in_time() -> None:
    assert formats.parse_moment("7d", NOW) == NOW - timedelta(days=7)
    assert formats.parse_moment("2026-11-01T12:00Z", NOW) == datetime(2026, 11, 1, 12, tzinfo=UTC)
    assert formats.parse_moment("2026-11-01", NOW).tzinfo is UTC
    with pytest.raises(ValueError, match="expected a date"):
        formats.parse_moment("soon", NOW)


def columns_at(width: int, *columns: Column) -> tuple[list[str], list[str]]:
    console = Console(width=width)
    found = build_cell_table(console, columns, [["x" * 10] * len(columns)], "2 rows")
    with console.capture() as captured:
        console.print(found)
    named = f"hidden columns: {', '.join(found.hidden)}" if found.hidden else "2 rows"
    assert named.split()[-1] in captured.get().split()[-1]
    return [str(column.header) for column in found.table.columns], list(found.hidden)


def test_the_least_important_columns_go_first() -> None:
    columns = (Column("must"), Column("nice", 2), Column("good", 1), Column("extra", 3))
    assert columns_at(50, *columns) == (["must", "nice", "good", "extra"], [])
    assert columns_at(35, *columns) == (["must", "nice", "good"], ["extra"])
    assert columns_at(25, *columns) == (["must", "good"], ["nice", "extra"])
    assert columns_at(5, *columns) == (["must"], ["nice", "good", "extra"])


def test_text_is_cut_with_a_sign_before_a_figure_is() -> None:
    console = Console(width=26)
    columns = (Column("machine"), Column("price", align="right"), Column("zone"))
    with console.capture() as captured:
        console.print(build_cell_table(console, columns, [["x" * 20, "$0.820", "y" * 9]]))
    assert captured.get().splitlines()[-1].split() == ["xxxxxxx…", "$0.820", "yyyyyyy…"]


def test_an_id_is_not_broken_while_another_column_can_be_hidden() -> None:
    columns = [Column("job", folds=True), Column("state"), Column("machine", 1)]
    row = ["tiny-language-model-t56prg", "succeeded", "sandbox L4:1"]
    console = Console(width=45)
    assert build_cell_table(console, columns, [row]).hidden == ["machine"]
    with console.capture() as printed:
        console.print(build_cell_table(console, columns, [row]))
    assert row[0] in printed.get()


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("  4m 32s  attempt 1: command running", ["  4m 32s  attempt 1: command", "          running"]),
        ("  missing: a bucket for runs and checkpoints", ["  missing: a bucket for runs and", "  checkpoints"]),
        ("no column, and a line that is too long", ["no column, and a line that is too", "long"]),
        ("short  line", ["short  line"]),
        ("", [""]),
    ],
)
def test_a_line_that_wraps_goes_on_below_its_first_words(line: str, lines: list[str]) -> None:
    assert hanging(line, Console(width=34)).plain.split("\n") == lines


def test_columns_that_are_empty_are_left_out_without_a_word() -> None:
    found = build_cell_table(Console(width=80), (Column("a"), Column("b", 1)), [["x", ""], ["y", Text("")]])
    assert [column.header for column in found.table.columns] == ["a"]
    assert found.hidden == []


def test_every_kind_of_event_is_told_or_kept_quiet_on_purpose() -> None:
    """A new event must be put into words, not shown by its code's name."""
    quiet: set[type[RecordOfKind]] = {ev.Launched, Claimed}
    for body in get_args(get_args(ev.EventBody)[0]):
        told = story.event_sentence(
            Event("j", 1, NOW, 1 if body in ABOUT_ATTEMPTS else None, sample(body)), None, formats.moment
        )
        if body in quiet:
            assert told is None
        else:
            assert told is not None, body
            assert told[0].removeprefix("attempt 1: ") != body.model_fields["kind"].default.replace("_", " ")


ABOUT_ATTEMPTS = (
    ev.Entered, ev.HandedOver, StandsBy,
    ev.LaunchRequested, ev.Launched, ev.LaunchDelayed, ev.ToppedUp, ev.HoldDated, ev.MachineUp, Claimed, Restored,
    CommandStarted, CheckpointSaved, CheckpointTrouble, NoticeTooShort, NoticeReceived,
    ev.StopRequested, ev.AttemptEnded, ev.RemovalDelayed, ev.MachineGone, ev.Queued, ev.HoldDated,
    CheckpointsMissing, OutputsSaved, OutputTrouble, MetricsReported, ResourcesUsed, TokensServed,
)  # fmt: skip


def sample(body: type[RecordOfKind]) -> Any:
    from broker.core.job.jobs import Job
    from broker.core.job.placements import Placement
    from broker.core.market.offers import CapacityType, Offer

    offer = Offer("aws", "us-east-1", None, "p5", "H100", 8, CapacityType.SPOT, Money.usd("9"), NOW, "api")
    placement = Placement(offer, 1, Money.usd("9"), Money.usd("9"), (), None, None, 1.0, 1.0, 0.1)
    values = {
        "job": Job(name="j", run="x"), "user": "ann", "by": "ann", "max_duration_seconds": 60.0,
        "because": "so", "state": JobState.FAILED, "key": "k", "engine": "local", "placement": placement,
        "handle": "h", "since": NOW, "checkpoint": "c-1", "source": "imds", "cause": Cause.PREEMPTED, "gone_at": NOW,
        "program": "nvidia-smi", "metrics": {"tokens": 3e9},
        "figures": {"memory": {"samples": 2, "mean": 3.0, "peak": 4.0}},
        "size": 14_000_000_000, "seconds": 45.0, "notice_seconds": 30.0, "amount": Money.usd("3"), "until": NOW,
        "every": 15.0, "files": 3, "rate": Money.usd("2"), "trigger": HoldTrigger.ENDS,
        "first": 0, "count": 3, "busy_ms": 1000, "models": [],
        "reason": Cancelled() if body is ev.StopRequested else AttemptStopped(cause=Cause.PREEMPTED),
    }  # fmt: skip
    return body.model_validate({name: value for name, value in values.items() if name in body.model_fields})


@pytest.mark.parametrize("terminal", [True, False])
def test_lines_of_tables_end_where_their_words_do(terminal: bool) -> None:
    console = Console(width=30 if terminal else 100_000, force_terminal=terminal, color_system=None)
    table = build_cell_table(
        console, (Column("a"), Column("b", folds=True), Column("c")), [["x", "word " * 9, ""], ["y"] * 3]
    )
    with console.capture() as captured:
        console.print(Trimmed(table))
    lines = captured.get().splitlines()
    assert len(lines) > 3
    assert lines == [line.rstrip() for line in lines]
    assert all(cell in captured.get() for cell in ("word", "x", "y"))


def test_every_cause_has_words() -> None:
    assert all(story.cause_text(cause) for cause in Cause)


def told(*bodies: tuple[int | None, ev.EventBody]) -> list[str]:
    events = [Event("j", n, NOW, attempt, body) for n, (attempt, body) in enumerate(bodies)]
    return [str(text).strip() for text in job_view.event_lines(events, NOW)]


def launch(rate: str) -> ev.LaunchRequested:
    body = sample(ev.LaunchRequested)
    assert isinstance(body, ev.LaunchRequested)
    return body.model_copy(update={"placement": replace(body.placement, rate=Money.usd(rate))})


def test_a_checkpoint_too_large_for_the_notice_is_told_with_its_figures() -> None:
    (line,) = told((1, sample(NoticeTooShort)))
    assert line == (
        "0s  attempt 1: a checkpoint of 14 GB takes 45 s to upload, but imds gives 30 s of notice: "
        "after an interruption, the checkpoint before it is used"
    )


def test_checkpoints_that_do_not_come_are_told_with_what_to_do() -> None:
    (line,) = told((1, sample(CheckpointsMissing)))
    assert "is running without a checkpoint after 45s, although the job file promises one every 15s" in line
    assert "$GPUBROKER_CHECKPOINT_DIR" in line


def test_capacity_that_costs_nothing_is_not_said_to_be_billed() -> None:
    ends = ((1, sample(ev.MachineUp)), (1, sample(ev.MachineGone)), (None, ev.JobClosed()))
    assert told((1, launch("0")), *ends)[1:] == [
        "0s  attempt 1: machine up", "0s  attempt 1: machine gone", "0s  all machines are gone",
    ]  # fmt: skip
    assert "billing ended" in told((1, launch("2")), *ends)[2]
    assert "remaining hold released" in told((1, launch("2")), *ends)[3]
    assert told((None, ev.JobClosed())) == []


def test_checkpoints_that_follow_each_other_are_one_line() -> None:
    saved = [(1, CheckpointSaved(checkpoint=f"c-{n}", step=n * 100)) for n in range(1, 11)]
    assert told(*saved) == ["0s  attempt 1: 10 checkpoints, the last at step 1,000"]
    assert told(saved[0]) == ["0s  attempt 1: checkpoint at step 100 saved"]


def test_why_a_job_waits_is_said_in_words() -> None:
    codes = {"sandbox_not_asked_for": 184, "not_a_cpu_offer": 136, "too_few_machines": 1}
    waits = reasons.wait_text
    assert waits(NothingFits(counts=codes)) == "queued, too few owned machines are free"
    assert waits(NothingFits(counts={"stale_price": 3, "unavailable": 1})).startswith("3 × the price is older")
    assert waits(NothingFits(counts={"wrong_region": 2})) == "2 × a region the job excludes"
    assert waits(None) == ""


@given(STOP_REASONS)
def test_every_reason_of_a_stop_is_put_into_words(reason: StopReason | None) -> None:
    silent = (None, RulesDeny(objections=()))
    assert (reasons.stop_text(reason) == "") == (reason in silent)


@given(wait_reasons | end_reasons)
def test_every_reason_is_put_into_words(reason: WaitReason | EndReason | None) -> None:
    """And none of them is shown by the name of its code."""
    told = (
        reasons.end_text(reason)
        if isinstance(reason, Completed | Cancelled | TasksEnded | PredecessorFailed)
        else reasons.wait_text(reason)
    )
    assert told == "" or reason is not None
    assert "kind=" not in told


def test_commands_to_paste_name_the_program_as_it_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/opt/some where/bin/gpubroker", "jobs"])
    assert program_name() == "'/opt/some where/bin/gpubroker'"
    monkeypatch.setattr("sys.argv", ["gpubroker"])
    assert program_name() == "gpubroker"
