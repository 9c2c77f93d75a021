"""The tokens that inference servers on this node count, from their metrics in Prometheus' text format.

Counters begin at 0 with their process; a value below the last one means that the server was started again. The names
are those of vLLM 0.33 (``vllm/v1/metrics/loggers.py``), SGLang 0.5.23 (``metrics_collector.py``; needs
``--enable-metrics``), TensorRT-LLM (pull requests 12545 and 12636), llama.cpp (``tools/server``; needs ``--metrics``),
and Text Generation Inference.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from broker.agent.clock import NodeClock, to_text
from broker.agent.journal import AttemptJournal

_TOKENS, _TIMES = ("input", "cached", "output"), ("input_ms", "output_ms")
_COUNTS = (*_TOKENS, *_TIMES)
_FIGURES = {
    f"{prefix}{name}": figure
    for prefix, names in (
        ("vllm:", "prompt_tokens_total prompt_tokens_cached_total generation_tokens_total num_requests_running"
                  " request_prefill_time_seconds_sum request_decode_time_seconds_sum"),
        ("sglang:", "prompt_tokens_total cached_tokens_total generation_tokens_total num_running_reqs"),
        ("trtllm_", "prompt_tokens_total prompt_cached_tokens_total generation_tokens_total"),
        ("llamacpp:", "prompt_tokens_total - tokens_predicted_total requests_processing prompt_seconds_total"
                      " tokens_predicted_seconds_total"),
        ("tgi_", "request_input_length_sum - request_generated_tokens_sum"),
    )
    for name, figure in zip(names.split(), (*_TOKENS, "running", *_TIMES))
}  # fmt: skip
_PATHS = ("/metrics", "/prometheus/metrics")  # the second: TensorRT-LLM, whose /metrics is JSON
_LABELS = r'(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?'
_LINE = re.compile(rf"([A-Za-z_:][\w:]*){_LABELS}[ \t]+([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)(?!\S)")
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_LARGEST = 8 << 20
_TIMEOUT = 5.0
_TOO_MANY = 1e15  # NaN and infinity are not below it
_MAX_MODELS, _MAX_SERIES, _LONGEST_NAME = 20, 10_000, 200
_DRAINING = 1.0  # seconds between samples while the command is told to end


Value = tuple[str, str, str, float]
"""A figure of `_FIGURES`, its series (name and labels), model, and number."""


class NoMetrics(Exception):
    """An endpoint that cannot be read, and why."""


def parse(text: str) -> Iterator[Value]:
    """The known figures; lines that are malformed are skipped."""
    for match in filter(None, map(_LINE.match, text.splitlines())):
        figure = _FIGURES.get(match[1])
        number = float(match[3]) * (1000 if figure in _TIMES else 1)
        if figure is not None and number < _TOO_MANY:
            labels = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _LABEL.findall(match[2] or "")}
            yield figure, f"{match[1]} {match[2]}", labels.get("model_name", "")[:_LONGEST_NAME], number


def read_metrics(port: int, path: str) -> str:
    """The text that a server on this node answers. Raises NoMetrics, also for more than 8 MiB or 5 s of it."""
    deadline = time.monotonic() + _TIMEOUT
    connection = http.client.HTTPConnection("localhost", port, timeout=_TIMEOUT)
    body = b""
    try:
        connection.request("GET", path, headers={"Accept": "text/plain", "Connection": "close"})
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise NoMetrics(f"{path} answers with status {answer.status}")
        while piece := answer.read1(1 << 16):
            body += piece
            if len(body) > _LARGEST or time.monotonic() > deadline:
                raise NoMetrics(f"{path} is larger than {_LARGEST >> 20} MiB or takes longer than {_TIMEOUT:.0f} s")
    except (OSError, http.client.HTTPException) as error:
        raise NoMetrics(str(error) or type(error).__name__) from error
    finally:
        connection.close()
    text = body.decode("utf-8", "replace")
    with contextlib.suppress(ValueError):  # llama.cpp once answered with a string of JSON (issue 17384)
        return str(json.loads(text)) if text.startswith('"') else text
    return text


class Counters:
    """The growth of counters since the last `take`."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], float] = {}
        self._growth: defaultdict[tuple[str, str], float] = defaultdict(float)

    def add(self, port: int, values: Sequence[Value]) -> bool:
        """Add a sample of one port; whether its server works on a request: now, or, if it does not say that, since the
        last sample."""
        grown = False
        for figure, series, model, number in values:
            key = port, series
            if figure == "running" or (key not in self._last and len(self._last) >= _MAX_SERIES):
                continue
            last = self._last.get(key, 0.0)
            self._growth[model, figure] += number - last if number >= last else number
            self._last[key] = number
            grown = grown or (number > last and figure in _TOKENS)
        running = [number > 0 for figure, _, _, number in values if figure == "running"]
        return any(running) if running else grown

    def take(self) -> list[dict[str, Any]]:
        """The growth by model with tokens, most output first; above 20 models the rest is one without a name."""
        growth, self._growth = self._growth, defaultdict(float)
        served = {model for (model, figure), number in growth.items() if figure in _TOKENS and number >= 1}
        rows: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * len(_COUNTS))
        for place, model in enumerate(sorted(served, key=lambda model: (-growth[model, "output"], model))):
            name = model if place < _MAX_MODELS - 1 else ""
            rows[name] = [total + growth[model, figure] for total, figure in zip(rows[name], _COUNTS)]
        return [{"model": name, **dict(zip(_COUNTS, map(round, row)))} for name, row in rows.items()]


def answers(port: int) -> bool:
    """Whether something listens on the port."""
    with contextlib.suppress(OSError), socket.create_connection(("localhost", port), _TIMEOUT):
        return True
    return False


class TokenWatch:
    """Samples the servers on ``ports`` every ``interval`` seconds, and writes what they served into the journal: at
    each full hour (UTC), and at the end. Make it before the first command: a port that answers already is of another
    program, and is left out. Counters are lost with the agent since the last full hour, and with a server since the
    last sample.
    """

    def __init__(self, ports: Sequence[int], clock: NodeClock, journal: AttemptJournal, interval: float) -> None:
        self._clock, self._journal, self._interval = clock, journal, interval
        self._troubles = {port: "another program used it before the job began" for port in ports if answers(port)}
        self._paths: dict[int, tuple[str, ...]] = {port: _PATHS for port in ports if port not in self._troubles}
        self._counters, self._busy = Counters(), timedelta(0)
        self._answered, self._reported = set[int](), ""
        self._since = self._sampled = clock.now()
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._ended = False

    def start(self) -> None:
        """Start when the command does."""
        self._since = self._sampled = self._clock.now()
        threading.Thread(target=self._run, name="tokens", daemon=True).start()

    def hurry(self) -> None:
        """The command is told to end: sample at once, and each second."""
        self._interval = min(self._interval, _DRAINING)
        self._wake.set()

    def stop(self) -> None:
        """The command has ended: write what it served."""
        with self._lock:
            if not self._ended:
                self._ended = True
                self._record(max(self._clock.now(), self._since))
        self._wake.set()

    def _run(self) -> None:
        while not self._ended:
            self._wake.wait(self._interval)
            self._wake.clear()
            self.sample()

    def sample(self) -> None:
        """Read every port once. What was read when the command ended is not counted."""
        samples = {port: self._read(port) for port in self._paths}
        with self._lock:
            now = self._clock.now()
            if self._ended:
                return
            hour = now.replace(minute=0, second=0, microsecond=0)
            if hour > self._since:
                self._record(hour)
            for port, (values, trouble) in samples.items():
                if values:
                    self._troubles.pop(port, None)
                    self._answered.add(port)
                else:
                    self._troubles[port] = trouble
            busy = [self._counters.add(port, values) for port, (values, _) in samples.items()]
            if any(busy):
                self._busy += max(now - self._sampled, timedelta(0))
            self._sampled = now

    def _read(self, port: int) -> tuple[list[Value], str]:
        """The figures of the port, or why there are none."""
        trouble = ""
        for path in self._paths[port]:
            try:
                values = list(parse(read_metrics(port, path)))
            except NoMetrics as error:
                trouble = trouble or str(error)
                continue
            if values:
                self._paths[port] = (path,)
                return values, ""
            trouble = trouble or f"{path} has no counters of tokens that are known"
        return [], trouble

    def _record(self, until: datetime) -> None:
        """Write what was served until then, also if it is nothing; trouble alone only if it is new."""
        models = self._counters.take()
        troubles = {port: because for port, because in self._troubles.items() if port not in self._answered}
        trouble = "; ".join(f"port {port}: {because}" for port, because in sorted(troubles.items()))
        if self._answered or trouble not in ("", self._reported):
            self._reported, self._answered = trouble, set()
            busy = min(self._busy, until - self._since)
            self._journal.append(
                "tokens_served",
                since=to_text(self._since),
                until=to_text(until),
                busy_ms=busy // timedelta(milliseconds=1),
                models=models,
                trouble=trouble,
            )
        self._since, self._busy = until, timedelta(0)
