"""`gpubroker serve`: what needs doing for as long as it runs, in the foreground."""

from __future__ import annotations

import signal
import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli import prices_watch
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from broker.market.poller import PollResult

EXAMPLES = examples("gpubroker serve", "gpubroker serve --provider aws --provider azure")


def serve(
    context: typer.Context,
    provider: Annotated[
        list[str] | None,
        typer.Option("--provider", "-p", help="Poll only this one; may be repeated. All but the sandbox by default."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Poll the providers on a schedule, and tell of what is watched, until Ctrl-C or SIGTERM.

    With --json, the document at the end counts the polls. Of several on one store, one polls and the others stand by.
    How often each provider is asked: GPUBROKER_PRICES__<NAME>__EVERY, else by how fast its prices age.
    """
    from broker.app.polling import Polling
    from broker.app.serve import serve as run
    from broker.app.watches import Watching

    terminal = Terminal.of(context)
    broker = terminal.broker()
    broker.store.check_writable()
    lock, stop = threading.Lock(), threading.Event()

    def say(*lines: Any) -> None:
        with lock:  # each duty has a thread of its own
            terminal.say(*lines)

    polls: dict[str, Counter[str]] = defaultdict(Counter)

    def tell(result: PollResult) -> None:
        from broker.cli.prices_poll import told

        polls[result.provider].update(polls=1, failed=int(result.failed), offers_changed=result.offers_changed)
        say(*told(result))

    polling = Polling(broker, provider or (), tell=tell, say=say)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    watching = Watching(broker, tell=lambda what: say(*prices_watch.told(what, broker)), say=say)
    run([polling, watching], stop)
    say("stopped")
    if as_json:
        terminal.answer({"providers": [{"provider": name, **counts} for name, counts in sorted(polls.items())]})
