"""`gpubroker dev` and `gpubroker ssh`, as far as nothing has to run. What runs is tried in
`tests/system/test_ssh.py`."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

POLICY = """\
version: 1
policy: pretend
budgets: [{name: pretend, amount: $100, period: month, counts: [sandbox]}]
"""


@pytest.fixture
def money(gpubroker: Any, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    assert gpubroker("policy", "apply", "policy.yaml", "--yes").code == 0


def test_a_dry_run_shows_the_price_per_hour_and_holds_an_hour_of_it(gpubroker: Any, money: None) -> None:
    done = gpubroker("dev", "--gpu", "L4", "--provider", "sandbox", "--for", "10h", "--dry-run", "--json")
    assert done.code == 0, done
    (held,) = done.json["hold_terms"]
    assert held["limited_by"] == "session"
    rate, amount = Decimal(held["rate_per_hour"]), Decimal(held["held"])
    assert rate <= amount < rate * Decimal("1.2"), "an hour, and the time to stop"
    text = gpubroker("dev", "--gpu", "L4", "--provider", "sandbox", "--for", "10h", "--dry-run").out
    assert "more is held while the session runs, for 10h at most" in text
    assert "it ends when it is idle for 30m" in text
    assert gpubroker("jobs", "list", "--json").json["jobs"] == []


def test_a_session_is_a_development_job_and_only_one_of_a_name_is_open(gpubroker: Any, started: list[object]) -> None:
    words = ("dev", "--name", "work", "--yes", "--detach")
    done = gpubroker(*words, "--json")
    assert done.code == 0, done
    assert (done.json["name"], done.json["workload"]) == ("work", "development")
    again = gpubroker(*words)
    assert again.code == 2
    assert "the session work is open" in again.err
    assert gpubroker("dev", "--name", "other", "--yes", "--detach", "--json").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--for", "4 hours ago"), "max_duration"),
        (("--idle", "0s"), "idle"),
        (("--gpu", "L5"), "L5"),
        (("--name", "a b"), "name"),
        (("--env", "NO_SUCH_VARIABLE"), "has no value in your shell"),
    ],
)
def test_bad_options_are_named_and_nothing_is_submitted(gpubroker: Any, words: tuple[str, ...], said: str) -> None:
    done = gpubroker("dev", *words, "--yes", "--detach")
    assert done.code == 2, done
    assert said in done.err
    assert gpubroker("jobs", "list", "--json").json["jobs"] == []


@pytest.mark.parametrize("options", [(), ("--proxy",)])
def test_a_job_that_does_not_run_cannot_be_entered(gpubroker: Any, job: Path, options: tuple[str, ...]) -> None:
    assert gpubroker("submit", job, "--yes", "--detach").code == 0
    refused = gpubroker("ssh", "tiny", *options)
    assert refused.code == 2
    assert "does not run" in refused.err
    assert gpubroker("ssh", "no-such-job", *options).code == 2


def test_a_port_that_is_none_is_refused() -> None:
    from broker.app.jobs.ssh import tunnel_options
    from broker.core.errors import InvalidInput

    assert tunnel_options("6006")[-1] == "127.0.0.1:6006:127.0.0.1:6006"
    assert tunnel_options("8080:80")[-1] == "127.0.0.1:8080:127.0.0.1:80"
    for ports in ("", "0", "x", ":80", "70000", "1:2:3", "-1"):
        with pytest.raises(InvalidInput):
            tunnel_options(ports)


def test_of_two_sessions_of_one_name_opened_at_once_one_is_refused(
    gpubroker: Any, money: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.app.jobs.sessions.resume_home", lambda broker, job, by: job)  # both have looked before
    opened = ("dev", "--gpu", "L4", "--provider", "sandbox", "--name", "twin", "--yes", "--detach")
    assert gpubroker(*opened).code == 0
    second = gpubroker(*opened)
    assert second.code == 2
    assert "the session twin is open" in second.err
    assert len(gpubroker("jobs", "list", "--json").json["jobs"]) == 1
    assert gpubroker(*opened[:-3], "other", *opened[-2:]).code == 0, "another name is another session"
