"""``/healthz`` for load balancers and ``/metrics`` for Prometheus.

Everybody may ask whether the service is healthy; reasons and metrics need the token (``Authorization: Bearer …``).
Figures about jobs and prices are read from the store at each request.
"""

from __future__ import annotations

import hmac
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from broker.app.service.health import DutyState, Pulses
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, InvalidInput, MissingExtra
from broker.core.events.outcomes import JobState

if TYPE_CHECKING:
    from prometheus_client import Metric

    from broker.core.events.views import JobView

SETTING = "GPUBROKER_SERVE__LISTEN"
TOKEN = "GPUBROKER_SERVE__TOKEN"  # noqa: S105  # the variable's name
PUBLIC_PATHS = ("/healthz", "/metrics")
_METHODS, _STREAMS = ("GET", "HEAD", "POST", "PUT", "DELETE"), ("/stream", "/news")
_TIMEOUT = 10.0  # seconds that a client may take to send its request


def parse_address(listen: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; an IPv6 host is in brackets. Raises `InvalidInput`."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or not 0 <= int(port) <= 65535 or not host:
        raise InvalidInput(f"{listen!r} is not an address", where=SETTING, hint="expected HOST:PORT, or off")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class ServiceResponder:
    """The responses of ``/healthz`` and ``/metrics``."""

    def __init__(self, broker: Broker, health: Pulses, token: str | None) -> None:
        """Raises `MissingExtra` without prometheus-client."""
        try:
            import prometheus_client
        except ImportError as error:
            raise MissingExtra("serve", "the page for Prometheus") from error
        self._token = token
        self._health = health
        self._numbers = MetricsCollector(broker, health)
        self._registry = prometheus_client.CollectorRegistry(auto_describe=False)
        self._registry.register(self._numbers)
        self._request_seconds = prometheus_client.Histogram(
            "gpubroker_request_seconds",
            "Duration of requests to the API and the page, without streams.",
            ["method", "route", "status"],
            registry=self._registry,
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
        )

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered. ``route``: the pattern of its path."""
        if not route.endswith(_STREAMS):
            known_method = method if method in _METHODS else "other"
            self._request_seconds.labels(known_method, route, str(status)).observe(seconds)

    def answer(self, path: str, authorization: str) -> tuple[int, str, bytes]:
        """Status, content type and body."""
        is_trusted = bool(self._token) and hmac.compare_digest(authorization.encode(), f"Bearer {self._token}".encode())
        if path == "/healthz":
            failing = self._health.ill()
            document: dict[str, Any] = {"healthy": not failing}
            if is_trusted:
                duties = {name: pulse.standing for name, pulse in self._health.pulses().items()}
                document |= {"duties": duties, "ill": failing}
            return (503 if failing else 200), "application/json", json.dumps(document).encode() + b"\n"
        if path == "/metrics" and not is_trusted:
            return 401, "text/plain", f"expected Authorization: Bearer, with the value of {TOKEN}\n".encode()
        if path == "/metrics":
            from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

            return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        return 404, "text/plain", b"there are /healthz and /metrics\n"


class MetricsPage:
    """The duty that serves these responses. ``port``: the actual port, if port 0 (any free one) was requested."""

    name = "page"

    def __init__(self, broker: Broker, health: Pulses, listen: str, token: str | None) -> None:
        """Raises as `ServiceResponder`, and `InvalidInput` for an invalid address or one in use."""
        host, port = parse_address(listen)
        self.answer = ServiceResponder(broker, health, token).answer
        try:
            self._server = ThreadingHTTPServer((host, port), self._handler())
        except OSError as error:
            raise InvalidInput(
                f"cannot listen on {listen}: {error.strerror or error}", where=SETTING, hint="another port, or off"
            ) from error
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def run(self, stop: threading.Event) -> None:
        """Serve until ``stop`` is set."""
        answering = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
        answering.start()
        stop.wait()
        self._server.shutdown()
        self._server.server_close()
        answering.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        page = self

        class MetricsHandler(BaseHTTPRequestHandler):
            timeout = _TIMEOUT
            server_version, sys_version = "gpubroker", ""

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                status, kind, body = page.answer(path, self.headers.get("Authorization", ""))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Requests are not logged."""

        return MetricsHandler


class MetricsCollector:
    """The metrics that Prometheus collects. While the store does not answer, its metrics are left out and
    ``gpubroker_up`` is 0."""

    def __init__(self, broker: Broker, health: Pulses) -> None:
        self._broker = broker
        self._health = health

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        yield from self._of_duties(GaugeMetricFamily, CounterMetricFamily)
        store_metrics: list[Metric] = []
        up_metric = GaugeMetricFamily("gpubroker_up", "1 while the store answers.")
        try:
            store_metrics = list(self._of_the_store(GaugeMetricFamily, CounterMetricFamily))
            up_metric.add_metric([], 1)
        except BrokerError:
            up_metric.add_metric([], 0)
        yield up_metric
        yield from store_metrics

    def _of_duties(self, gauge: Callable[..., Any], counter: Callable[..., Any]) -> Iterator[Metric]:
        standing = gauge("gpubroker_duty", "1 for the present state of each duty.", labels=["duty", "standing"])
        runs = counter("gpubroker_looks", "Runs of a duty.", labels=["duty"])
        failures = counter("gpubroker_look_failures", "Runs in which the store did not answer.", labels=["duty"])
        steps = counter("gpubroker_steps", "Steps taken by a duty.", labels=["duty"])
        seconds = gauge("gpubroker_look_seconds", "Duration of the last run.", labels=["duty"])
        silence = gauge("gpubroker_silent_seconds", "Time since the last report of a duty.", labels=["duty"])
        for name, pulse in self._health.pulses().items():
            for state in DutyState:
                standing.add_metric([name, state.value], float(pulse.standing is state))
            runs.add_metric([name], pulse.looks)
            failures.add_metric([name], pulse.failures)
            steps.add_metric([name], pulse.steps)
            seconds.add_metric([name], pulse.seconds)
            silence.add_metric([name], self._health.silent_for(name))
        yield from (standing, runs, failures, steps, seconds, silence)

    def _of_the_store(self, gauge: Callable[..., Any], counter: Callable[..., Any]) -> Iterator[Metric]:
        broker, now = self._broker, self._broker.clock.now()
        with broker.store.reading() as reader:
            views = reader.unclosed()
            live = reader.live_attempts()
            unreadable_count = len(reader.unreadable)
            end_counts, failure_counts = reader.end_counts(), reader.failure_counts()
        jobs = gauge("gpubroker_open_jobs", "Jobs that are not closed, by state.", labels=["state"])
        for state, count in sorted(Counter(view.state.value for view in views).items()):
            jobs.add_metric([state], count)
        ends = counter("gpubroker_job_ends", "Jobs that ended, by state.", labels=["state"])
        for state in filter(lambda state: state.final, JobState):
            ends.add_metric([state.value], end_counts.get(state.value, 0))
        failures = counter("gpubroker_attempt_failures", "Attempts that did not complete, by cause.", labels=["cause"])
        for cause, count in failure_counts.items():
            failures.add_metric([cause.value], count)
        waits = gauge("gpubroker_longest_wait_seconds", "The longest present wait for it.", labels=["awaits"])
        requested = {
            "approval": [view.asked.at for view in views if view.asked],
            "machine": [view.submitted_at for view in views if view.state is JobState.QUEUED],
        }
        for awaited, times in requested.items():
            waits.add_metric([awaited], max(((now - at).total_seconds() for at in times), default=0.0))
        yield from (ends, failures, waits, *_of_machines(gauge, views))
        attempts = gauge("gpubroker_live_attempts", "Attempts that have not ended.")
        attempts.add_metric([], len(live))
        age = gauge("gpubroker_price_age_seconds", "Time since the last successful poll.", labels=["provider"])
        offers = gauge("gpubroker_offers", "Current offers of a provider.", labels=["provider"])
        for name, freshness in sorted(broker.store.market.freshness(now).items()):
            if freshness.last_success is not None:
                age.add_metric([name], max((now - freshness.last_success).total_seconds(), 0.0))
            offers.add_metric([name], freshness.offers)
        unreadable = gauge("gpubroker_unreadable_jobs", "Open jobs that this version cannot read.")
        unreadable.add_metric([], unreadable_count)
        yield from (jobs, attempts, unreadable, age, offers)
        yield from self._of_money(gauge)

    def _of_money(self, gauge: Callable[..., Any]) -> Iterator[Metric]:
        from broker.app.billing.budgets import budgets

        label = ["budget"]
        limit = gauge("gpubroker_budget_limit_usd", "Limit of a budget in its present period.", labels=label)
        spent = gauge("gpubroker_budget_spent_usd", "Spent of it in this period.", labels=label)
        held = gauge("gpubroker_budget_held_usd", "Held of it for jobs.", labels=label)
        remaining = gauge("gpubroker_budget_left_usd", "Left of it; negative if it is exceeded.", labels=label)
        expected = gauge("gpubroker_budget_expected_usd", "Expected at the end of the period.", labels=label)
        for line in budgets(self._broker):
            for metric, amount in (
                (limit, line.limit),
                (spent, line.use.spent),
                (held, line.use.held),
                (remaining, line.left),
                (expected, line.forecast.expected),
            ):
                metric.add_metric([line.spec.id], float(amount.dollars))
        yield from (limit, spent, held, remaining, expected)


def _of_machines(gauge: Callable[..., Any], views: Iterable[JobView]) -> Iterator[Metric]:
    """What is live, by provider and capacity type; with the GPUs that are paid for and do nothing."""
    labels = ["provider", "capacity_type"]
    machines = gauge("gpubroker_live_machines", "Machines of live attempts.", labels=labels)
    gpus = gauge("gpubroker_live_gpus", "GPUs of live attempts.", labels=labels)
    idle = gauge("gpubroker_idle_gpus", "Of these: GPUs times the part of the time without work.", labels=labels)
    rate = gauge("gpubroker_spend_rate_usd", "What live machines cost in an hour.", labels=labels)
    figures: dict[tuple[str, str], list[float]] = {}
    for attempt in (attempt for view in views for attempt in view.attempts if not attempt.over):
        placement, idle_percent = attempt.placement, attempt.use.get("gpu_idle")
        unused = placement.gpus * idle_percent.mean / 100 if idle_percent else 0.0
        place = placement.offer.provider, placement.offer.capacity_type.value
        sums = figures.setdefault(place, [0.0] * 4)
        amounts = (placement.nodes, placement.gpus, unused, float(placement.rate.dollars))
        figures[place] = [total + amount for total, amount in zip(sums, amounts, strict=True)]
    families = (machines, gpus, idle, rate)
    for place, totals in sorted(figures.items()):
        for family, total in zip(families, totals, strict=True):
            family.add_metric(list(place), total)
    yield from families
