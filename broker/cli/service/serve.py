"""`gpubroker serve`: reconcile jobs, poll prices and send alerts in the foreground."""

from __future__ import annotations

import signal
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.options import AsJson, OnlyProviders, examples
from broker.cli.prices import watch
from broker.cli.prices.status import poll_outcome_lines
from broker.cli.terminal import Terminal
from broker.core.actors import Actor
from broker.core.errors import InvalidInput
from broker.core.extras import install_command

if TYPE_CHECKING:
    from broker.app.service.duties import Duty
    from broker.app.service.health import Pulses
    from broker.app.service.metrics import MetricsPage
    from broker.app.wiring import Broker
    from broker.market.poller import PollResult
    from broker.server.api.team_server import TeamServer
    from broker.server.api.transport import Transport

EXAMPLES = examples(
    "gpubroker serve",
    "gpubroker serve --provider aws --provider azure",
    "gpubroker serve --listen 127.0.0.1:8080",
    "gpubroker serve --listen 0.0.0.0:8443 --tls-cert server.pem --tls-key server.key",
)


def serve(
    context: typer.Context,
    provider: OnlyProviders = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Address of page, API, /healthz and /metrics, or off. Default: 127.0.0.1:9464."
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="TLS certificate (chain) in PEM.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key in PEM.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run the broker: place and watch jobs, poll prices, send alerts, answer the API, show the web UI.

    It serves the store of this machine, also while you are logged in to a server.
    Runs until Ctrl-C or SIGTERM. If several instances share a store, one looks after jobs and one polls prices; the
    others stand by and take over. Without an instance, running jobs continue, but no job is re-placed.
    GPUBROKER_PRICES__<NAME>__EVERY sets a provider's poll interval; by default it follows from the maximum age of its
    prices. The web UI and the API (/api/v1) need the extra `server`; on an address other than loopback they need TLS,
    or `public_url` under \\[serve] if a proxy adds it. They accept the tokens of `gpubroker tokens create`, the web UI
    also the links of `gpubroker people invite`; on a terminal, it prints such a link for the first administrator until
    there is one. With --json, the document printed at the end counts polls and passes over the jobs.
    """
    from broker.app.market.polling import PollDuty
    from broker.app.market.watches import WatchDuty
    from broker.app.runs_root import claim
    from broker.app.service.duties import (
        CapacityCheckDuty,
        ChargesDuty,
        LaunchEndDuty,
        PurchaseDuty,
        ReconcileDuty,
        RetentionDuty,
        SweepDuty,
    )
    from broker.app.service.duties import serve as run
    from broker.app.service.health import Pulses
    from broker.app.service.passes import log_to_file
    from broker.server.api.transport import Transport

    terminal = Terminal.of(context)
    broker = terminal.broker(look_after=False)  # this command restarts the reconciler itself
    broker.store.check_writable()
    claim(broker)
    lock, stop = threading.Lock(), threading.Event()

    def say(*lines: Any) -> None:
        with lock:  # each duty has its own thread
            terminal.say(*lines)

    polls: dict[str, Counter[str]] = defaultdict(Counter)

    def tell(result: PollResult) -> None:
        from broker.app.market.price_documents import PollOutcome

        polls[result.provider].update(polls=1, failed=int(result.failed), offers_changed=result.offers_changed)
        say(*poll_outcome_lines(PollOutcome.of(result), hint=True))

    polling = PollDuty(broker, provider or (), tell=tell, say=say)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    watching = WatchDuty(broker, tell=lambda event: say(*watch.alert_lines(event, broker)), say=say)
    pulses = Pulses()
    duties: list[Duty] = [ReconcileDuty(broker, health=pulses, say=say), polling, watching]
    duty_types = (SweepDuty, ChargesDuty, PurchaseDuty, CapacityCheckDuty, RetentionDuty, LaunchEndDuty)
    duties += [duty_type(broker, say=say) for duty_type in duty_types]
    pulses.begins(ReconcileDuty.name)
    settings = broker.settings.serve
    transport = Transport(tls_cert, tls_key, settings.public_url, settings.trusted_proxies)
    http_duty = _start_http_duty(broker, terminal.actor, pulses, listen, transport, say)
    if http_duty is not None:
        duties.append(http_duty)
    log_to_file(broker.settings.home)
    run(duties, stop)
    say("stopped")
    if as_json:
        from broker.app.service.documents import PolledTotals, ReconciledTotals, ServiceReport

        jobs = pulses.pulses()[ReconcileDuty.name]
        terminal.answer(
            ServiceReport(
                providers=[PolledTotals(provider=name, **counts) for name, counts in sorted(polls.items())],
                jobs=ReconciledTotals(looks=jobs.looks, steps=jobs.steps),
            )
        )


def _start_http_duty(
    broker: Broker, actor: Actor, pulses: Pulses, listen: str | None, transport: Transport, say: Callable[[str], None]
) -> Duty | None:
    """The HTTP server: page, API, health and metrics, or only the last two. A second instance on this machine runs
    without it, unless an address was given."""
    from broker.settings import ServeSettings

    serve_settings = broker.settings.serve
    listen_address = listen or serve_settings.listen
    if listen_address == "off":
        return None
    try:
        http_duty = _build_http_server(broker, actor, pulses, listen_address, transport, say)
    except InvalidInput as error:
        if listen or listen_address != ServeSettings().listen:
            raise
        say(f"the API, /healthz and /metrics are off: {error}")
        return None
    say(f"answering at {http_duty.url}/healthz and /metrics")
    return http_duty


def _build_http_server(
    broker: Broker, actor: Actor, pulses: Pulses, listen_address: str, transport: Transport, say: Callable[[str], None]
) -> TeamServer | MetricsPage:
    from broker.app.service.metrics import MetricsPage, parse_address
    from broker.server.api.transport import TLS_HINT

    host, _ = parse_address(listen_address)
    secret = broker.settings.serve.token
    token = secret.get_secret_value() if secret else None
    if not all(find_spec(name) for name in ("fastapi", "uvicorn")):
        say("the API is off: it needs the extra 'server'; install it: " + install_command("server"))
    elif token and not transport.is_safe(host) and transport.key is None:
        say(f"the API is off: others can reach {host} and could read its tokens in transit ({TLS_HINT})")
    else:
        from broker.app.service.passes import log_to_file
        from broker.server.api.team_server import ACCESS, TeamServer

        if broker.settings.serve.access_log:
            log_to_file(broker.settings.home, "access.log", ACCESS, "%(message)s", earlier=9)
        if find_spec("jinja2") is None:
            server = TeamServer(broker, pulses, listen_address, token, transport)
            say("the web UI is off: it needs jinja2 of the extra 'server'; install it: " + install_command("server"))
        else:
            from broker.server.page.application import api_and_page

            server = TeamServer(broker, pulses, listen_address, token, transport, api_and_page)
            say(f"the web UI is at {server.url}/")
            _invite_first_administrator(broker, actor, transport.public_url or server.url, say)
        say(f"the API is at {server.url}/api/v1; `gpubroker tokens create` makes tokens")
        return server
    return MetricsPage(broker, pulses, listen_address, token)


def _invite_first_administrator(broker: Broker, actor: Actor, url: str, say: Callable[[str], None]) -> None:
    """Without an administrator, print a link that makes ``actor`` one. Only on a terminal: otherwise the output is kept
    in a file or a journal, where a link must not appear."""
    from broker.app.access.documents import CreatedLink
    from broker.app.access.sessions import first_link, lacks_administrator

    if not lacks_administrator(broker):
        return
    if not sys.stderr.isatty():
        say("there is no administrator yet: `gpubroker people invite NAME --administrator` prints a sign-in link")
    elif invitation := first_link(broker, by=actor):
        sign_in_link = CreatedLink.of(invitation, url)
        link_end = f"{sign_in_link.ends_at:%Y-%m-%d %H:%M} UTC"
        say(
            f"there is no administrator yet; this link signs {sign_in_link.person} in as the first one, once, until "
            f"{link_end}:"
        )
        say(sign_in_link.link)
