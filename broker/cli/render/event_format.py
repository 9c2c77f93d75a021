"""The events of a job as lines of text, in the local time zone and in colour."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from broker.app.results import story
from broker.app.results.story import MachineContext, Tone
from broker.cli.render import formats
from broker.core.events.events import Event

_COLOURS = {Tone.GOOD: "green", Tone.BAD: "red", Tone.ODD: "yellow", Tone.PLAIN: ""}


def lines(happened: Sequence[Event], start: datetime) -> list[Text]:
    """All events, one line each; consecutive checkpoints share a line."""
    return [_dated(one) for one in story.in_words(happened, start, formats.moment)]


def line(event: Event, start: datetime, course: MachineContext | None = None) -> Text | None:
    """The event with its time since ``start``; None for events that are not shown."""
    told = story.tell(event, start, formats.moment, course)
    return None if told is None else _dated(told)


def _dated(one: story.ToldEvent) -> Text:
    return Text.assemble((f"{formats.length(one.after):>8}  ", "dim"), (one.text, _COLOURS[one.tone]))
