"""A stand-in for an inference server, with vLLM's metrics: ``python serving_engine.py PORT MODEL``. It counts what
``POST /serve?input=…&cached=…&output=…`` says, with 1 ms for each token read that was not cached, and 5 ms for each
token generated; it works on requests from one ``POST /running?requests=N`` to the next. Told to end, it ends when its
metrics were read once more."""

import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Engine:
    def __init__(self, model: str) -> None:
        self.registry = registry = CollectorRegistry()
        labels = ("model_name", "engine")
        metrics = {
            "input": "vllm:prompt_tokens", "cached": "vllm:prompt_tokens_cached", "output": "vllm:generation_tokens"
        }  # fmt: skip
        self.tokens = {
            name: Counter(metric, "x", labels, registry=registry).labels(model, "0") for name, metric in metrics.items()
        }
        times = {"input": "vllm:request_prefill_time_seconds", "output": "vllm:request_decode_time_seconds"}
        self.seconds = {
            name: Histogram(metric, "x", labels, registry=registry).labels(model, "0") for name, metric in times.items()
        }
        self.ending = threading.Event()
        self.running = Gauge("vllm:num_requests_running", "x", labels, registry=registry).labels(model, "0")

    def serve(self, input: int = 0, cached: int = 0, output: int = 0) -> None:
        for name, count in (("input", input), ("cached", cached), ("output", output)):
            self.tokens[name].inc(count)
        self.seconds["input"].observe((input - cached) / 1000)
        self.seconds["output"].observe(output / 200)

    def metrics(self) -> bytes:
        return generate_latest(self.registry)


def server(port: int, engine: Engine) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_last = engine.ending.is_set()
            self._answer(engine.metrics() if self.path == "/metrics" else None)
            if is_last:
                threading.Thread(target=self.server.shutdown).start()

        def do_POST(self) -> None:
            address = urlsplit(self.path)
            values = {name: int(value) for name, value in parse_qsl(address.query)}
            if address.path == "/serve":
                engine.serve(**values)
            else:
                engine.running.set(values["requests"])
            self._answer(b"")

        def _answer(self, body: bytes | None) -> None:
            self.send_response(404 if body is None else 200)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    served = Engine(sys.argv[2])
    signal.signal(signal.SIGTERM, lambda *_: served.ending.set())
    server(int(sys.argv[1]), served).serve_forever()
