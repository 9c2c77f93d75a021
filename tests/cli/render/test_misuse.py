"""Usage errors name the option, what was expected, and the value."""

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("plan --limit three", "--limit: expected a whole number; got 'three'"),
        ("plan --limit 2.5", "--limit: expected a whole number; got '2.5'"),
        ("advise serve 7B --assume memory_headroom=abc", "memory_headroom: expected a number, 0 to 0.9; got 'abc'"),
        ("plan --limit 0", "--limit: expected 1 or more; got 0"),
        ("advise size 7B --method qlra", "--method: expected adamw, sgd, lora, qlora or inference; got"),
        ("advise size 7B --method qlra", "got 'qlra'; did you mean 'qlora'?"),
        ("advise size 7", "got 7; did you mean 7B?"),
        ("advise size seven", "error: MODEL: expected a number of parameters such as 7B"),
        ("advise size --mehtod lora", "error: unknown option --mehtod; did you mean '--method'?"),
        ("capacity undo", "error: PURCHASE: the argument is missing"),
        ("ofers --gpu L4", "error: unknown command 'ofers'; did you mean 'offers'?"),
        ("status a b", "error: unexpected argument: b"),
        ("status --wait", "error: --wait needs a JOB"),
        ("status a --mine", "error: --mine belongs to the list"),
        ("status a --wait --attempts", "error: --wait and --attempts cannot be combined"),
        ("notices ops", "error: recipients belong to --test"),
        ("notices --retry --test", "error: --failed, --retry and --test cannot be combined"),
        ("offers --gpu", "error: --gpu: expected a value"),
        ("offers --spot=3", "error: --spot: takes no value"),
        ("policy rollback latest", "VERSION: expected a whole number; got 'latest'"),
    ],
)
def test_a_number(gpubroker: Any, arguments: str, told: str) -> None:
    done = gpubroker(*arguments.split())
    assert (done.code, told in done.err) == (2, True), done.err


def test_every_usage_error_says_where_to_look(gpubroker: Any) -> None:
    assert "hint: see `gpubroker offers --help`" in gpubroker("offers", "--gup", "L4").err
    for wrong in ("--gpu", "--spot=3"):
        assert "hint: see `gpubroker offers --help`" in gpubroker("offers", wrong).err, wrong


@pytest.mark.parametrize("command", ["plan", "submit"])
def test_a_dry_run_is_a_plan(gpubroker: Any, command: str) -> None:
    done = gpubroker(command, "job.yaml", "--dry-run")
    assert (done.code, done.out) == (2, "")
    assert "hint: `gpubroker plan` shows what `gpubroker submit` would do" in done.err
