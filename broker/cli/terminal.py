"""What a command talks to: standard output for its answer, standard error for chatter, and the broker behind it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from typer.exceptions import TyperException

from broker.core.errors import BrokerError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.wiring import Broker, Registries
    from broker.settings import Settings

# Where nobody looks at the width (a pipe, a file), lines are as long as they are.
_UNBOUNDED = 100_000

T = TypeVar("T")


class Terminal:
    """One run of the program. ``as_json``: one document on standard output and nothing else there."""

    def __init__(self, registries: Callable[[], Registries], *, as_json: bool) -> None:
        self.registries = registries
        self.as_json = as_json
        self._broker: Broker | None = None

    @staticmethod
    def of(context: typer.Context) -> Terminal:
        """The one that `broker.cli.program.run` made."""
        terminal = context.find_object(Terminal)
        assert terminal is not None
        return terminal

    @cached_property
    def out(self) -> Console:
        """For the answer. Colours and folding on a terminal only."""
        return _console(stderr=False)

    @cached_property
    def err(self) -> Console:
        """For chatter."""
        return _console(stderr=True)

    @property
    def asks(self) -> bool:
        """Whether there is a person to ask."""
        return sys.stdin is not None and sys.stdin.isatty() and not self.as_json

    def show(self, *parts: RenderableType) -> None:
        """Part of the answer for people; chatter when the answer is a document."""
        console = self.err if self.as_json else self.out
        for part in parts:
            console.print(_trimmed(part), highlight=False, soft_wrap=not console.is_terminal)

    def say(self, *parts: RenderableType) -> None:
        """A word beside the answer."""
        for part in parts:
            self.err.print(part, highlight=False, soft_wrap=not self.err.is_terminal)

    def answer(self, document: Any) -> None:
        """The one document."""
        from broker.cli.document import to_json

        print(to_json(document), file=sys.stdout)  # noqa: T201  # Rich would fold and colour it

    def settings(self, *, warns: bool = True) -> Settings:
        """The settings in force; a variable that is misspelt is said."""
        from broker.settings import read_settings, unknown_variables

        if warns:
            for sentence in unknown_variables(os.environ).values():
                self.say(f"warning: {sentence}")
        return read_settings()

    def broker(self, *, look_after: bool = True) -> Broker:
        """The broker, made once. Opening it warns of variables that are no settings, and restarts a background
        reconciler that died with work left."""
        if self._broker is None:
            from broker.app.wiring import Broker
            from broker.settings import check_names

            settings, registries = self.settings(warns=look_after), self.registries()
            check_names(settings, registries.providers, registries.engines)
            self._broker = Broker(settings, registries)
            if look_after:
                from broker.app.background import revive

                revive(self._broker)
        return self._broker

    def adopt(self) -> None:
        """Take up the policy files that GPUBROKER_POLICY names if no policy was ever active, and say so."""
        broker = self.broker()
        if not broker.settings.policy:
            return
        from broker.app.policies import adopt

        if adopted := adopt(broker):
            self.say(f"Adopted as version {adopted.number} of the active policy: {', '.join(adopted.files)}")

    def refuse(self, error: BrokerError) -> int:
        """Tell of an error that has a sentence of its own; the exit code."""
        from broker.cli.errors import error_document, error_text

        if self.as_json:
            self.answer(error_document(error))
        else:
            self.say(error_text(error))
        return error.exit_code

    def misused(self, error: TyperException) -> int:
        """Tell of a command line that does not fit; the exit code."""
        from broker.core.errors import InvalidInput

        if type(error).__name__ == "NoArgsIsHelpError":
            self.out.print(error.format_message(), end="", highlight=False)
            return 2
        context = getattr(error, "ctx", None)
        hint = f"see `{context.command_path} --help`" if context is not None else ""
        message = error.format_message().replace("Value error, ", "")  # pydantic's word, not a person's
        return self.refuse(InvalidInput(message, hint=hint))

    def crashed(self, error: Exception) -> int:
        """Keep the traceback in the log file and tell of it in a sentence; the exit code."""
        from broker.cli.errors import keep_traceback

        kept = keep_traceback(error)
        sentence = BrokerError(
            f"something unexpected happened: {type(error).__name__}: {error}".rstrip(": "),
            hint=f"the details are in {kept}; please report it" if kept else "please report it",
        )
        self.refuse(sentence)
        return 1

    def close(self) -> None:
        """Give the store back, if it was opened."""
        if self._broker is not None and "store" in self._broker.__dict__:
            self._broker.store.close()


def _trimmed(part: RenderableType) -> RenderableType:
    from rich.text import Text

    from broker.cli.tables import Trimmed

    return part if isinstance(part, str | Text) else Trimmed(part)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _UNBOUNDED
    return Console(stderr=stderr, width=width, markup=False, emoji=False, soft_wrap=False)
