"""A real Prometheus scrapes a real server; the dashboard's expressions are evaluated on what it collected."""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.app.service.health import Pulses
from broker.server.api.team_server import TeamServer
from broker.server.api.transport import Transport
from tests.program import eventually
from tests.server.world import Company, bearer
from tests.slurm_cluster import free_ports
from tests.waiting import LONGEST

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(PROMETHEUS is None or PROMTOOL is None, reason="prometheus is not installed"),
]
DASHBOARD = Path(__file__).parents[2] / "examples" / "service" / "grafana.json"
TOKEN = "of prometheus"  # of this test
# What nothing has in a company whose jobs have not begun.
NOT_YET = ("gpubroker_live_", "gpubroker_idle_", "gpubroker_spend_rate_")


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


@pytest.fixture
def server(world: Company) -> Iterator[TeamServer]:
    pulses, stop = Pulses(), threading.Event()
    pulses.record_run("jobs", 0.1)
    server = TeamServer(world.broker, pulses, "127.0.0.1:0", TOKEN, Transport())
    answering = threading.Thread(target=server.run, args=(stop,), daemon=True)
    answering.start()
    yield server
    stop.set()
    answering.join()


def test_the_metrics_are_well_formed(server: TeamServer) -> None:
    text = httpx.get(f"{server.url}/metrics", headers=bearer(TOKEN), timeout=LONGEST).text
    checked = subprocess.run(
        [str(PROMTOOL), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stderr


def test_the_dashboard_shows_what_is_scraped(server: TeamServer, world: Company, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    (tmp_path / "prometheus.yml").write_text(
        f"global: {{scrape_interval: 5s, scrape_timeout: 5s}}\n"
        f"scrape_configs:\n"
        f"  - job_name: gpubroker\n"
        f"    authorization: {{credentials: {TOKEN}}}\n"
        f"    static_configs: [{{targets: ['{server.url.removeprefix('http://')}']}}]\n"
    )
    words = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    with subprocess.Popen([str(PROMETHEUS), *words, f"--web.listen-address=127.0.0.1:{port}"]) as process:
        try:
            look = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=LONGEST)

            def found(expression: str) -> list[Any] | None:
                httpx.get(f"{server.url}/api/v1/jobs", headers=bearer(world.usual("mia")), timeout=LONGEST)
                try:
                    answer = look.get("/query", params={"query": expression})
                except httpx.TransportError:
                    return None
                assert answer.json()["status"] == "success", (expression, answer.text)
                result: list[Any] = answer.json()["data"]["result"]
                return result or None

            eventually(lambda: found("gpubroker_up"), "the server is scraped")
            for expression in expressions():
                if any(name in expression for name in NOT_YET):
                    found(expression)
                else:
                    eventually(lambda asked=expression: found(asked), expression)  # type: ignore[misc]
        finally:
            process.terminate()
