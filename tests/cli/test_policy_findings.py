"""`gpubroker policy findings`."""

from __future__ import annotations

from tests.cli.conftest import Gpubroker


def test_idle_reserved_gpus_are_told_with_their_arithmetic(gpubroker: Gpubroker) -> None:
    held = ["reservation", "H100:8", "--provider", "aws", "--hourly", "16", "--from", "2026-01-01", "--term", "5y"]
    assert gpubroker("capacity", "add", *held).code == 0
    done = gpubroker("policy", "findings", "--since", "30d", "--json")
    assert done.code == 0
    (finding,) = done.json["findings"]
    assert (finding["kind"], finding["gpus"], finding["accelerator"]) == ("over_committed", 8, "H100")
    assert finding["saves_usd_per_month"] == "11680.00"  # 8 × 730 h × $2
    assert finding["arithmetic"]["held_usd"] == 2.0
    shown = gpubroker("policy", "findings")
    assert "over-committed by 8 H100: let them lapse when the term ends  $11,680.00 a month" in shown.out


def test_nothing_held_and_nothing_run_is_nothing_found(gpubroker: Gpubroker) -> None:
    done = gpubroker("policy", "findings", "--json")
    assert (done.code, done.json["findings"]) == (0, [])
    assert "Nothing found" in gpubroker("policy", "findings").out


def test_a_time_that_is_none_is_exit_2(gpubroker: Gpubroker) -> None:
    assert gpubroker("policy", "findings", "--since", "soon").code == 2
    assert gpubroker("policy", "findings", "--since", "9000-01-01").code == 2


def test_the_time_may_be_said_as_in_a_backtest(gpubroker: Gpubroker) -> None:
    assert gpubroker("policy", "findings", "--from", "30d").code == 0
