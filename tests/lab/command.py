"""What the programs of the lab share: options, progress, output, and how errors end."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import Progress as Bar
from rich.text import Text

from broker.core.errors import BrokerError, InvalidInput
from broker.core.values.units import parse_duration

Progress = Callable[[int, int, str], None]
"""Called with the number of finished units, the total, and the name of the current unit."""


def seconds(text: str) -> float:
    """Seconds of an option such as ``48h`` or ``12m``; a number without a unit is refused, because it is ambiguous."""
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def hours(text: str) -> int:
    """Whole hours of an option such as ``720h`` or ``30d``; a number without a unit is hours."""
    found, rest = divmod(seconds(f"{text}h" if text.strip().isdecimal() else text), 3600)
    if rest:
        raise argparse.ArgumentTypeError(f"expected whole hours, such as 720h or 30d; got {text!r}")
    return int(found)


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas, without duplicates."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def parser(description: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", action="store_true", help="print the JSON document")
    return made


@contextmanager
def progress() -> Iterator[Progress | None]:
    """A progress bar on stderr, if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with Bar(console=console, transient=True) as shown:
        task = shown.add_task("", total=None)
        yield lambda done, total, what: shown.update(task, completed=done, total=total, description=what)


def show(document: dict[str, Any], parts: Callable[[Console], Iterable[RenderableType]], *, as_json: bool) -> None:
    """The document as JSON, or as the ``parts`` for people."""
    if as_json:
        print(json.dumps(document, indent=2, ensure_ascii=False))
        return
    console = Console(highlight=False)
    for part in parts(console):
        console.print(part, soft_wrap=isinstance(part, str | Text))


def run(main: Callable[[Sequence[str]], int]) -> None:
    """Run a program with this process's arguments; an error ends it with a sentence, as in `gpubroker`."""
    try:
        code = main(sys.argv[1:])
    except BrokerError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        print(f"error: {error}{hint}", file=sys.stderr)
        code = 2 if isinstance(error, InvalidInput) else error.exit_code
    raise SystemExit(code)
