"""The console on which results and messages are printed."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from broker.cli.render.errors import CONTROL


class HarmlessConsole(Console):
    """A console that prints no control characters of texts: names and reasons come from jobs, providers and servers,
    and may not control the person's terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """As `Console.render`, with a question mark for each control character in a text."""
        for segment in super().render(renderable, options):
            if segment.control is None and CONTROL.search(segment.text):
                yield Segment(CONTROL.sub("?", segment.text), segment.style)
            else:
                yield segment
