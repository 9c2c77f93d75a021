"""Input and output of a command: stdout for the result, stderr for messages, and the broker that it uses."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import is_dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TextIO, TypeVar

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text
from typer.exceptions import TyperException

from broker.cli.render.errors import CONTROL, error_text, keep_traceback
from broker.cli.render.tables import Trimmed, hanging
from broker.cli.render.usage_errors import usage_error
from broker.core.actors import Actor, ProcessAccount
from broker.core.errors import AskAPerson, BrokerError, InvalidInput
from broker.server.client.logins import current_login

if TYPE_CHECKING:
    from rich.live import Live

    from broker.app.access.callers import Caller
    from broker.app.wiring import Broker, Registries
    from broker.server.client.team_api import TeamApi
    from broker.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")
# Output to a pipe or a file is not wrapped.
_UNBOUNDED_WIDTH = 100_000
# The exit code when the reader of the output closed it, as the shell reports it for other programs.
CUT_OFF = 128 + signal.SIGPIPE
_SINGLE_JOB_COMMANDS = ("ssh", "exec", "jobs diff", "jobs files", "status", "logs")


class NotThroughServer(AskAPerson):
    """A command that acts for a team and that the server does not offer. ``command``: without ``gpubroker``."""

    def __init__(self, command: str) -> None:
        hint = "run it where the server runs"
        if not command.startswith(_SINGLE_JOB_COMMANDS):  # because this machine's store has no such job
            hint += "; or `GPUBROKER_SERVER=off gpubroker …` uses the store of this machine, which is not the server's"
        super().__init__(f"`gpubroker {command}` does not work through a team server", hint=hint)


class Terminal:
    """One run of the program. ``as_json``: stdout gets one JSON document and nothing else. ``actor``: who runs it.
    ``through_server``: the command acts through a team server and opens no store."""

    def __init__(self, registries: Callable[[], Registries], actor: Actor, *, as_json: bool) -> None:
        self.registries = registries
        self.actor = actor
        self.as_json = as_json
        self.through_server = False
        self._command = ""
        self._broker: Broker | None = None

    @staticmethod
    def of(context: typer.Context) -> Terminal:
        """The terminal that `broker.cli.program.run` created."""
        terminal = context.find_object(Terminal)
        assert terminal is not None
        terminal._command = context.command_path.partition(" ")[2]
        return terminal

    @cached_property
    def out(self) -> Console:
        """Console for the result (stdout). Colors and wrapping only on a terminal."""
        return _console(stderr=False)

    @cached_property
    def err(self) -> Console:
        """Console for messages (stderr)."""
        return _console(stderr=True)

    @property
    def asks(self) -> bool:
        """Whether questions can be asked: stdin is a terminal, and the output is not JSON."""
        return sys.stdin is not None and sys.stdin.isatty() and not self.as_json

    def confirm(self, question: str, *, yes: bool, hint: str = "add --yes") -> bool:
        """Whether the person agrees; asked unless ``yes`` says so. Raises `InvalidInput` without a terminal."""
        if yes:
            return True
        if not self.asks:
            raise InvalidInput(f"no terminal for the confirmation: {question}", hint=hint)
        return typer.confirm(question, default=False, err=True)

    def show(self, *parts: RenderableType) -> None:
        """Print part of the result as text; to stderr when the result is JSON."""
        console = self.err if self.as_json else self.out
        for part in parts:
            console.print(_fit(part, console), highlight=False, soft_wrap=_is_unbroken(part, console))

    def say(self, *parts: RenderableType) -> None:
        """Print a message to stderr."""
        for part in parts:
            self.err.print(_fit(part, self.err), highlight=False, soft_wrap=_is_unbroken(part, self.err))

    def live(self) -> AbstractContextManager[Live | None]:
        """A status line below the output that can be updated; None if the output is not a terminal."""
        console = self.err if self.as_json else self.out
        if not console.is_terminal:
            return nullcontext()
        from rich.live import Live

        return Live("", console=console, auto_refresh=False, transient=True)

    def busy(self, text: str, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The result of a call that prints and asks nothing; meanwhile, on a terminal, a spinner with that text."""
        with self.err.status(text) if self.err.is_terminal else nullcontext():
            return call(*args, **kwargs)

    def print_stopped(self) -> None:
        """Print that Ctrl-C ended the command; also if a change may have been made at the server."""
        server = self.__dict__.get("server")
        if server is None or not server.changing:
            self.say("Stopped.")
            return
        from broker.server.client.team_api import CHECK_FIRST, NOT_KNOWN

        self.say(f"Stopped; {NOT_KNOWN}: {CHECK_FIRST}.")

    def answer(self, document: Any) -> None:
        """Print the JSON document to stdout."""
        print(to_json(document), file=sys.stdout)  # noqa: T201  # Rich would fold and color it

    def result(self, document: Any, lines: Callable[[], Iterable[RenderableType]]) -> None:
        """Print the result: with --json the document (if it is a function, what that returns), else the lines."""
        if self.as_json:
            self.answer(document() if callable(document) else document)
        else:
            self.show(*lines())

    def settings(self, *, warns: bool = True) -> Settings:
        """The settings in force. Warns of ``GPUBROKER_*`` variables that are not settings."""
        from broker.settings import read_settings, unknown_variables

        if warns:
            for sentence in unknown_variables(os.environ).values():
                self.say(f"warning: {sentence}")
        return read_settings()

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of this process."""
        return os.environ

    def only_here(self, options: Mapping[str, object]) -> None:
        """Check options that a team server does not offer, by name. Raises `NotThroughServer` if the command acts
        through a server and one has a value."""
        for name, value in options.items():
            if self.through_server and value not in (None, False, [], ()):
                raise NotThroughServer(f"{self._command} {name}")

    @cached_property
    def server(self) -> TeamApi | None:
        """The team server that the user is logged in to; None without a login. Sends no request. Raises `InvalidInput`
        for a login that cannot be read."""
        login = current_login(self.environment)
        if login is None:
            return None
        from broker.server.client.team_api import TeamApi

        return TeamApi(login)

    @property
    def api(self) -> TeamApi:
        """The API of that server, for a command that acts through it."""
        assert self.server is not None
        return self.server

    def ask(self, use_case: Callable[Concatenate[Caller, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The document of a use case of `broker.app.use_cases`: run here, or by the team server that commands act
        through."""
        from broker.app.use_cases.table import row_of

        if self.through_server:
            return self.api.run(use_case, *args, **kwargs)
        from broker.app.access.callers import local_caller

        broker = self.broker()
        document = use_case(local_caller(broker, self.actor), *args, **kwargs)
        if row_of(use_case).action:
            from broker.app.jobs.background import revive

            revive(broker)  # waiting jobs may be allowed now, running ones must end
        return document

    def job_id(self, reference: str, *, single: bool = False) -> str:
        """The id of the job that a person calls ``reference``. ``single``: not of an array."""
        if self.through_server:
            from broker.server.client.sending import job_id

            return job_id(self.api, reference)
        from broker.app.jobs.jobs import find, find_single

        return (find_single if single else find)(self.broker(), reference).id

    def now(self) -> datetime:
        """The present time (UTC): of the broker; for a command through a server, of this machine."""
        return datetime.now(UTC) if self.through_server else self.broker().clock.now()

    def broker(self, *, look_after: bool = True) -> Broker:
        """The broker, created on first use. ``look_after``: also warn of variables that are not settings, and restart a
        background reconciler that stopped with work left."""
        if self.through_server:
            raise NotThroughServer(self._command)
        if self._broker is None:
            from broker.app.wiring import Broker
            from broker.settings import check_names

            settings, registries = self.settings(warns=look_after), self.registries()
            check_names(settings, registries.providers, registries.engines)
            self._broker = Broker(settings, registries, ProcessAccount(self.actor.identity))
            if look_after:
                from broker.app.jobs.background import revive

                revive(self._broker)
        return self._broker

    def reload(self) -> None:
        """Read the settings again when the broker is next needed, because a setting was written."""
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    def adopt(self) -> None:
        """Activate the policy files that GPUBROKER_POLICY names if no policy was ever active, and print that; nothing
        through a server."""
        if self.through_server:
            return
        broker = self.broker()
        if not broker.settings.policy:
            return
        from broker.app.policy.policies import adopt_configured

        if policy_version := adopt_configured(broker, by=self.actor):
            self.say(
                f"Adopted policy version {policy_version.number} from GPUBROKER_POLICY: "
                f"{', '.join(policy_version.files)}"
            )

    def refuse(self, error: BrokerError) -> int:
        """Print an expected error. Returns the exit code."""
        if self.as_json:
            from broker.app.documents import ErrorDocument

            self.answer(ErrorDocument.of(error))
        else:
            self.say(error_text(error))
        return error.exit_code

    def print_usage_error(self, error: TyperException, command: str) -> int:
        """Print a usage error of the command. Returns the exit code."""
        if type(error).__name__ == "NoArgsIsHelpError":
            self.out.print(error.format_message(), end="", highlight=False)
            return 2
        return self.refuse(usage_error(error, command))

    def print_crash(self, error: Exception) -> int:
        """Write the traceback to the log file and print one sentence. Returns the exit code."""
        log_path = keep_traceback(error)
        sentence = BrokerError(
            f"unexpected error: {type(error).__name__}: {error}".rstrip(": "),
            hint=f"the traceback is in {log_path}; please report it" if log_path else "please report it",
        )
        self.refuse(sentence)
        return 1

    @staticmethod
    def cut_off() -> int:
        """Replace stdout and stderr if their reader closed them. Otherwise Python would report at exit that it cannot
        flush them. Returns the exit code; 0 if both have a reader."""
        closed_streams = [stream for stream in (sys.stdout, sys.stderr) if _has_no_reader(stream)]
        for stream in closed_streams:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return CUT_OFF if closed_streams else 0

    def unwritable(self, error: OSError) -> int:
        """Print on stderr that stdout cannot be written, for example because of a full disk. Returns the exit code."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise Python fails again at exit
        self.say(f"error: the output cannot be written: {error.strerror or error}")
        return 1

    def close(self) -> None:
        """Close the store and the connections to a server, if they were opened."""
        if self._broker is not None:
            self._broker.close()
        if (server := self.__dict__.get("server")) is not None:
            server.close()


def _has_no_reader(stream: TextIO) -> bool:
    """Whether the stream is a pipe without a reader."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
    except (OSError, ValueError):  # no file behind it
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _fit(part: RenderableType, console: Console) -> RenderableType:
    """The part in lines that fit on a terminal, without trailing blanks."""
    if not isinstance(part, str | Text):
        return Trimmed(part)
    return part if _is_unbroken(part, console) else hanging(part, console)


def _is_unbroken(part: RenderableType, console: Console) -> bool:
    """Whether lines may be longer than the console: in a file, and for a single word, such as a token or an address,
    which people copy."""
    return not console.is_terminal or (isinstance(part, str) and " " not in part)


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _UNBOUNDED_WIDTH
    return HarmlessConsole(stderr=stderr, width=width, markup=False, emoji=False, soft_wrap=False)


def to_json(document: Any) -> str:
    """The text of a document."""
    from broker.app.documents import json_text, plain

    values = json.loads(json_text(document)) if is_dataclass(document) else plain(document)
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)


@contextmanager
def defer_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Within the block the first Ctrl-C is only recorded; a second one interrupts as usual, in case the store hangs.

    Yields a function that says whether Ctrl-C was pressed. Outside the main thread, which receives no signals, nothing
    changes.
    """
    pressed = False

    def record_press(number: int, frame: object) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    if threading.current_thread() is not threading.main_thread():
        yield lambda: pressed
        return
    previous_handler = signal.signal(signal.SIGINT, record_press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(
            signal.SIGINT, previous_handler or signal.SIG_DFL
        )  # None: the handler was not installed from Python


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
