"""The tokens that servers on the node count: their formats, restarts, hours, and endpoints that give none."""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.request import Request, urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.agent import served
from broker.agent.clock import NodeClock, from_text, to_text
from broker.agent.journal import AttemptJournal
from broker.agent.masking import Mask
from broker.agent.served import Counters, TokenWatch, parse
from broker.agent.store import ObjectFolder
from broker.core.events.agent_events import NoticeReceived, ServedModel, TokensServed
from tests.agent.node import Node, eventually
from tests.serving_engine import Engine, server
from tests.slurm_cluster import free_ports

NOON = datetime(2026, 11, 12, 12, tzinfo=UTC)
MODELS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=30)
COUNTS = st.integers(0, 10**6)


@given(MODELS, st.lists(st.tuples(COUNTS, COUNTS, COUNTS), min_size=1, max_size=5))
def test_what_a_server_counts_is_read_whatever_its_model_is_called(model: str, requests: list[tuple[int, ...]]) -> None:
    engine, counters = Engine(model), Counters()
    for uncached, cached, output in requests:
        engine.serve(uncached + cached, cached, output)
        engine.serve(1)
    assert not counters.add(8000, list(parse(engine.metrics().decode())))
    input, cached, output = (sum(request[place] for request in requests) for place in range(3))
    assert counters.take() == [
        {
            "model": model,
            "input": input + cached + len(requests),
            "cached": cached,
            "output": output,
            "input_ms": pytest.approx(input + len(requests), abs=1),
            "output_ms": pytest.approx(5 * output, abs=1),
        }
    ]
    assert counters.take() == [], "counted once"


@given(st.lists(st.one_of(st.integers(0, 1000), st.none()), max_size=30))
def test_a_value_below_the_last_one_is_a_restart(steps: list[int | None]) -> None:
    """``None``: the server starts again."""
    counters, value = Counters(), 0
    for step in steps:
        if step is None:
            value = 0
            continue
        value += step
        counters.add(1, [*parse(f"llamacpp:prompt_tokens_total {value}")])
    assert sum(model["input"] for model in counters.take()) == sum(growth for growth in _growths(steps)), (
        "as the rule says: a fall is a restart"
    )


def _growths(steps: Sequence[int | None]) -> Iterator[int]:
    last = value = 0
    for step in steps:
        if step is None:
            value = 0
            continue
        value += step
        yield value - last if value >= last else value
        last = value


SGLANG = """# HELP sglang:prompt_tokens_total Number of prefill tokens processed.
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{engine_type="unified",model_name="meta/llama \\"x\\"",tp_rank="0"} 8.128902e+06
sglang:cached_tokens_total{model_name="meta/llama \\"x\\""} 100.0 1700000000000
sglang:generation_tokens_total{model_name="meta/llama \\"x\\""} 7.557572e+06
sglang:num_running_reqs{model_name="meta/llama \\"x\\""} 162.0
"""
TRTLLM = """trtllm_prompt_tokens_total{engine_type="trtllm",model_name="undefined"} 40
trtllm_prompt_cached_tokens_total{engine_type="trtllm",model_name="undefined"} 8
trtllm_generation_tokens_total{engine_type="trtllm",model_name="undefined"} 20
"""
LLAMACPP = """llamacpp:prompt_tokens_total 70
llamacpp:prompt_seconds_total 1.25
llamacpp:tokens_predicted_total 30
llamacpp:tokens_predicted_seconds_total 2.5
llamacpp:requests_processing 1
"""


@pytest.mark.parametrize(
    ("text", "model", "figures"),
    [
        (SGLANG, 'meta/llama "x"', (8_128_902, 100, 7_557_572, 0, 0)),
        (TRTLLM, "undefined", (40, 8, 20, 0, 0)),
        (LLAMACPP, "", (70, 0, 30, 1250, 2500)),
        ("tgi_request_input_length_sum 12\ntgi_request_generated_tokens_sum 5\n", "", (12, 0, 5, 0, 0)),
    ],
)
def test_the_formats_of_other_servers(text: str, model: str, figures: tuple[int, ...]) -> None:
    counters = Counters()
    assert counters.add(8000, list(parse(text))), "at work: it says so, or its tokens grew"
    names = ("input", "cached", "output", "input_ms", "output_ms")
    assert counters.take() == [{"model": model, **dict(zip(names, figures, strict=True))}]


@given(st.text(max_size=300))
def test_nonsense_is_no_figure(text: str) -> None:
    assert not list(parse(text))
    assert not list(parse(f'vllm:prompt_tokens_total{{model_name="{text}'.replace("\n", " ").replace("}", " ")))


def test_figures_that_are_no_counts_are_left_out() -> None:
    lines = [f"vllm:prompt_tokens_total {value}" for value in ("NaN", "+Inf", "-1", "1e400", "x", "")]
    assert not list(parse("\n".join(lines)))


def test_ever_more_series_and_models_take_no_more_memory() -> None:
    counters = Counters()
    lines = (f'vllm:generation_tokens_total{{model_name="m{number}"}} {number}' for number in range(20_000))
    counters.add(1, list(parse("\n".join(lines))))
    models = counters.take()
    assert len(counters._last) == 10_000
    assert len(models) == 20
    assert sum(model["output"] for model in models) == sum(range(10_000)), "models without a row of their own share one"


class Hand(NodeClock):
    """A clock that is set."""

    at_hand = NOON

    def now(self) -> datetime:
        return type(self).at_hand


class Watched:
    """A watch over ports with a clock that is set; ``events``: what it wrote."""

    def __init__(self, folder: Path, ports: Sequence[int]) -> None:
        self.clock = Hand()
        self.at(0)
        self._journal = AttemptJournal(ObjectFolder(folder.as_uri()), None, self.clock)
        self.watch = TokenWatch(ports, self.clock, self._journal, 30.0)

    def at(self, minutes: float) -> None:
        type(self.clock).at_hand = NOON + timedelta(minutes=minutes)

    def sample(self, minutes: float) -> None:
        self.at(minutes)
        self.watch.sample()

    @property
    def events(self) -> list[dict[str, Any]]:
        return self._journal._entries


@contextmanager
def serving(port: int, engine: Engine) -> Iterator[None]:
    http = server(port, engine)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def counts(event: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {model["model"]: (model["input"], model["output"]) for model in event["models"]}


def test_two_servers_of_a_node_by_hour_with_a_restart_and_one_that_vanishes(tmp_path: Path) -> None:
    (first, second), chat = free_ports(2), Engine("chat")
    watched = Watched(tmp_path, [first, second])
    with serving(first, chat):
        with serving(second, code := Engine("code")):
            chat.serve(100, output=10)
            code.serve(7, output=3)
            watched.sample(20)
            code.serve(1)
            chat.running.set(1)
            watched.sample(30)
        chat.serve(50, output=5)
        watched.sample(50)
    with serving(first, again := Engine("chat")):
        again.serve(20, output=2)
        watched.sample(70)
        again.serve(3)
        watched.sample(80)
    watched.at(90)
    watched.watch.stop()
    watched.watch.stop()
    hour, rest = watched.events
    times = [(from_text(event["since"]), from_text(event["until"])) for event in watched.events]
    one = NOON + timedelta(hours=1)
    assert times == [(NOON, one), (one, NOON + timedelta(minutes=90))], "each event ends at its hour"
    assert counts(hour) == {"chat": (150, 15), "code": (8, 3)}
    assert counts(rest) == {"chat": (23, 2)}, "the new process counts from 0"
    assert hour["busy_ms"] == 30 * 60_000, "from the sample before the one that shows requests"
    assert rest["busy_ms"] == 0
    assert rest["trouble"] == f"port {second}: [Errno 111] Connection refused"


def test_what_was_served_just_after_a_full_hour_counts_if_the_job_ends_then(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    watched = Watched(tmp_path, [port])
    with serving(port, engine := Engine("chat")):
        for minutes in (20, 61):
            engine.serve(100, output=10)
            watched.sample(minutes)
    watched.at(62)
    watched.watch.stop()
    assert [counts(event) for event in watched.events] == [{"chat": (100, 10)}, {"chat": (100, 10)}]


def test_the_broker_reads_counts_in_which_secrets_are_hidden(tmp_path: Path) -> None:
    """Two models whose names are secrets are one."""
    mask = Mask(["2026-11-12T", "the-input_ms-of-all", "tokens_served", "llama-one-x", "llama-two-x"])
    journal = AttemptJournal(ObjectFolder(tmp_path.as_uri()), None, Hand(), mask)
    figures = {"input": 5, "cached": 1, "output": 2, "input_ms": 3, "output_ms": 4}
    models = [{"model": name, **figures} for name in ("llama-one-x", "llama-two-x")]
    until = to_text(NOON + timedelta(minutes=5))
    journal.append("tokens_served", since=to_text(NOON), until=until, busy_ms=9, models=models, trouble="")
    journal.append("notice_received", source="s", terminates_at=to_text(NOON))
    served, notice = journal._entries
    (model,) = TokensServed.model_validate(served).models
    assert model == ServedModel(model="*" * 11, **{name: 2 * figure for name, figure in figures.items()})
    assert NoticeReceived.model_validate(notice).terminates_at == NOON


def test_a_port_of_another_program_is_left_out_and_said_once(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with serving(port, engine := Engine("theirs")):
        watched = Watched(tmp_path, [port])
        engine.serve(100)
        for minutes in (10, 61, 122):
            watched.sample(minutes)
        watched.watch.stop()
    (event,) = watched.events
    assert event["models"] == []
    assert event["trouble"] == f"port {port}: another program used it before the job began"


class Endpoint(BaseHTTPRequestHandler):
    """Answers by path; ``/slow`` never ends."""

    bodies: ClassVar[dict[str, bytes]] = {}
    release = threading.Event()

    def do_GET(self) -> None:
        body = self.bodies.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(body or b"")
        if body == b"slow":
            self.wfile.flush()
            self.release.wait(60)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize(
    ("bodies", "because"),
    [
        ({}, "/metrics answers with status 404"),
        ({"/metrics": b"<html>vllm:prompt_tokens_total</html>"}, "/metrics has no counters of tokens that are known"),
        ({"/metrics": b"\xff\x00" * 50}, "/metrics has no counters of tokens that are known"),
        ({"/metrics": b'"not json'}, "/metrics has no counters of tokens that are known"),
        ({"/metrics": b"x" * 3000}, "/metrics is larger than 0 MiB or takes longer than 60 s"),
        ({"/metrics": b"slow"}, "timed out"),
        ({"/metrics": b'[{"iterLatencyMS": 3}]', "/prometheus/metrics": TRTLLM.encode()}, ""),
        ({"/metrics": b'"' + LLAMACPP.replace("\n", "\\n").encode() + b'"'}, ""),
    ],
)
def test_what_an_endpoint_answers_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bodies: dict[str, bytes], because: str
) -> None:
    monkeypatch.setattr(served, "_LARGEST", 2000)
    monkeypatch.setattr(served, "_TIMEOUT", 0.2 if b"slow" in bodies.values() else 60.0)
    (port,) = free_ports(1)
    watched = Watched(tmp_path, [port])

    class Handler(Endpoint):
        release = threading.Event()

    Handler.bodies = bodies
    http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        watched.sample(10)
        watched.at(20)
        watched.watch.stop()
    finally:
        Handler.release.set()
        http.shutdown()
        http.server_close()
    (event,) = watched.events
    assert event["trouble"] == (f"port {port}: {because}" if because else "")
    assert bool(event["models"]) is not bool(because)


def post(port: int, path: str) -> bool:
    try:
        return bool(urlopen(Request(f"http://127.0.0.1:{port}{path}", method="POST"), timeout=60).status == 200)
    except OSError:
        return False


def test_an_agent_tells_what_its_server_served_until_it_was_told_to_stop(node: Node) -> None:
    (port,) = free_ports(1)
    engine = Path(__file__).parents[1] / "serving_engine.py"
    command = f"exec {sys.executable} {engine} {port} Qwen3"
    node.spec(command, serving_ports=(port,), intervals={"metrics": 3600.0}, grace=60.0)
    agent = node.start()
    eventually(lambda: post(port, "/serve?input=9000&cached=2500&output=600"), "the server answers")
    agent.terminate()
    agent.wait(240)
    (event,) = [body for body in node.events() if isinstance(body, TokensServed)]
    (model,) = event.models
    assert (model.model, model.input, model.cached, model.output) == ("Qwen3", 9000, 2500, 600)
    assert (model.input_ms, model.output_ms) == (6500, 3000)
    assert event.trouble == ""
