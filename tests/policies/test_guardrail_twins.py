"""Every rule at the gate: something it stops, and the near twin that it lets through (`guardrail_twins.py`). What runs
is tried in `tests/app/test_guardrails.py`, by the same table."""

from typing import Any

import pytest

from broker.app.jobs.alternatives import denial_error
from broker.app.jobs.preview import preview
from broker.app.jobs.submit import submit
from broker.app.wiring import Broker
from policies.rules import RULES
from tests.actors import ANN
from tests.policies.guardrail_twins import NOT_ABOUT_JOBS, NOT_WHILE_RUNNING, PAIRS, activate, entry, job, machine, site

__all__ = ["machine", "site"]


def test_every_registered_rule_has_a_row() -> None:
    assert {pair.kind for pair in PAIRS.values()} == RULES.keys() - NOT_ABOUT_JOBS.keys()


def test_every_registered_rule_has_a_row_while_running_or_a_reason_why_not() -> None:
    stops = {pair.kind for pair in PAIRS.values() if pair.running}
    assert stops | NOT_WHILE_RUNNING.keys() == RULES.keys() - NOT_ABOUT_JOBS.keys()
    assert not stops & NOT_WHILE_RUNNING.keys()


@pytest.mark.parametrize("name", PAIRS)
def test_at_the_gate(site: Broker, machine: dict[str, Any], name: str) -> None:
    pair = PAIRS[name]
    machine.update(pair.machine)
    asked = job(site, "a", pair.job)
    if name in ("jobs", "gpus"):
        activate(site)
        submit(site, job(site, "a"), by=ANN)  # the first of two

    def said(text: str) -> int:
        activate(site, entry(site, "g", text, "a", pair.section))
        return preview(site, asked, by=ANN).exit_code

    assert said(pair.lets) == 0
    assert said(pair.stops) == pair.ends


def test_a_refusal_says_which_rule_where(site: Broker) -> None:
    activate(site, entry(site, "cheap", "max_job_cost: $2", "a"))
    seen = preview(site, job(site, "a"), by=ANN)

    assert seen.admission is not None
    assert str(denial_error(seen.admission)) == (
        "the job may cost $721.00; the limit is $2.00 per job; set a lower max_cost in the job file (0.yaml:3)"
    )
