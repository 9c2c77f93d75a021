"""`gpubroker policy decisions`: who was refused what, how much, and why."""

from pathlib import Path
from typing import Any

from tests.cli.conftest import Gpubroker


def test_denials_are_listed_with_who_what_how_much_and_why(
    gpubroker: Gpubroker, policy: Path, sandbox_job: Path, job: Path
) -> None:
    assert gpubroker("policy", "decisions", "--denied", "--json").json["decisions"] == []
    assert gpubroker("submit", job, "--yes", "--detach").code == 0
    assert gpubroker("submit", sandbox_job, "--yes", "--max-duration", "900h").code == 3
    everything: Any = gpubroker("policy", "decisions", "--json").json["decisions"]
    (denied,) = gpubroker("policy", "decisions", "--denied", "--json").json["decisions"]
    assert denied in everything
    assert len(everything) > 1
    assert (denied["answer"], denied["job_name"], denied["job_id"], denied["seen"]) == ("deny", "trial", None, {})
    assert float(denied["money"]["sandbox"]) > 3
    shown = gpubroker("policy", "decisions", "--denied").out
    for words in (
        denied["user"],
        "trial",
        "denies",
        "budget pretend of $3.00",
        f"${float(denied['money']['sandbox']):.2f} sandbox",
    ):
        assert words in shown
