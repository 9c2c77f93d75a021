"""What Jupyter's kernels do, by the documented shape of its REST API (GET /api/kernels)."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from broker.agent.session import kernel_states

TOKEN = "0123456789abcdef"


class KernelsApi(BaseHTTPRequestHandler):
    """One server of Jupyter. It knows its token."""

    kernels: object = []

    def do_GET(self) -> None:
        allowed = self.headers["Authorization"] == f"token {TOKEN}" and self.path == "/lab/api/kernels"
        self.send_response(200 if allowed else 403)
        self.end_headers()
        self.wfile.write(json.dumps(self.kernels if allowed else {"message": "Forbidden"}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Path]:
    """Jupyter's runtime folder, with the file of a server that answers."""
    with HTTPServer(("127.0.0.1", 0), KernelsApi) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        about = {"port": server.server_port, "token": TOKEN, "base_url": "/lab/", "pid": 1}
        (tmp_path / "jpserver-1.json").write_text(json.dumps(about))
        yield tmp_path
        server.shutdown()


def kernel(state: str, connections: int = 1) -> dict[str, object]:
    return {
        "id": "x",
        "name": "python3",
        "last_activity": "2026-11-25T16:38:07Z",
        "execution_state": state,
        "connections": connections,
    }


def test_the_states_of_kernels(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # a proxy of the environment is not asked
    for kernels, states in (
        ([], []),
        ([kernel("busy"), kernel("idle")], ["busy", "idle"]),
        ([kernel("starting", 0), kernel("starting", 1)], ["idle", "starting"]),
    ):
        monkeypatch.setattr(KernelsApi, "kernels", kernels)
        assert kernel_states(runtime) == states


def test_a_server_that_does_not_answer_as_documented_is_unknown(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kernels in ({"message": "?"}, [{"id": "x"}], "text", None):
        monkeypatch.setattr(KernelsApi, "kernels", kernels)
        assert kernel_states(runtime) is None


def test_a_server_that_refuses_is_gone_or_never_came_is_unknown(runtime: Path, tmp_path: Path) -> None:
    file = runtime / "jpserver-1.json"
    about = json.loads(file.read_text())
    file.write_text(json.dumps({**about, "token": "another"}))
    assert kernel_states(runtime) is None
    file.write_text("{")
    assert kernel_states(runtime) is None
    file.unlink()
    assert kernel_states(runtime) is None
