"""A spot price that rises under a running job, with real processes: more is held while the policies let it; else it is
checkpointed, stopped and billed, and goes on to its end once they do."""

import json
import os
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from broker.app.jobs import jobs
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.extension import extend
from broker.app.jobs.reasons import wait_text
from broker.app.jobs.submit import submit
from broker.app.wiring import Broker
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import AttemptView
from broker.core.job.file import parse_job
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import ActionKind, Answer
from broker.core.values.money import Money
from broker.ledger.entries import Account, Movement
from broker.reconciler.controllers.top_up import TopUpPace
from tests.actors import ANN
from tests.policies.guardrail_twins import MACHINE, PRICE, RunningJobs, activate, machine, site

__all__ = ["machine", "site"]
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(os.name != "posix", reason="processes and signals"),
]
COMMAND = """\
d="$GPUBROKER_CHECKPOINT_DIR"; stop=
i=$(ls "$d" | sed -n 's/^step-//p' | sort -n | tail -n 1); i=${i:-0}
# A stop is told to everything here: what saves lets it pass, and what an earlier one left half saved is cleared away.
save() {
  i=$((i+1))
  (trap '' TERM; rm -rf "$d/.new"; mkdir "$d/.new" && echo $i > "$d/.new/step" && mv "$d/.new" "$d/step-$i")
}
trap 'stop=1' TERM
until [ "$stop" ] || [ -e "$FINISH" ]; do save; sleep 0.5 & wait $!; done
save
"""


def started(site: Broker, monkeypatch: pytest.MonkeyPatch, finish: Path) -> RunningJobs:
    """One job at $1 a second for 10 minutes, running, with a checkpoint; its money is looked at every few seconds."""
    monkeypatch.setattr("broker.app.service.passes.TopUpPace", partial(TopUpPace, every=timedelta(0)))
    running = RunningJobs(site)
    indented = COMMAND.replace("\n", "\n  ").rstrip()
    text = f"name: spot\nmax_duration: 10m\nresources: {{accelerators: 'H100:1'}}\nenvs: {{FINISH: '{finish}'}}\n"
    running.views["spot"] = submit(
        site,
        parse_job(f"{text}run: |\n  {indented}\n{MACHINE}", file="job.yaml", now=site.clock.now()),
        by=ANN,
    )
    running.until(lambda: bool(running.views["spot"].checkpoint), "a checkpoint is saved")
    return running


def price_rises(site: Broker, attempt: AttemptView, times: str) -> None:
    """The provider tells another price for what runs."""
    now = site.clock.now()
    offer = replace(attempt.placement.offer, price=PRICE.scaled(float(times)), as_of=now)
    site.store.record_poll("acme", started=now, finished=now, offers=[offer])


def topped_up(site: Broker, running: RunningJobs) -> list[ev.ToppedUp]:
    return [e.body for e in jobs.events(site, running.views["spot"]) if isinstance(e.body, ev.ToppedUp)]


def test_more_is_held_for_what_runs_while_the_policies_let_it(
    site: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    activate(site)
    running = started(site, monkeypatch, tmp_path / "finish")
    first = running.views["spot"].attempts[0]
    price_rises(site, first, "1.2")
    running.until(lambda: bool(topped_up(site, running)), "more is held")
    view = running.views["spot"]
    with site.store.reading() as look:
        entries, decisions = look.entries(view.id), look.decisions(job_id=view.id)
    assert (ActionKind.EXTEND, Answer.ALLOW) in {(one.action, one.answer) for one in decisions}
    assert [e for e in entries if e.movement is Movement.TOP_UP and e.account is Account.HELD]
    ends_at = first.up_since + view.max_duration if first.up_since else None
    assert ends_at is not None

    def granted() -> bool:
        (lease,) = site.settings.home.glob("runs/*/attempts/1/lease.json")
        paid = json.loads(lease.read_text()).get("paid_until")
        return paid is not None and abs(datetime.fromisoformat(paid) - ends_at) < timedelta(seconds=30)

    running.until(granted, "the node may use all of its time")
    assert running.views["spot"].state is JobState.RUNNING
    (tmp_path / "finish").touch()
    running.until(running.all(JobState.SUCCEEDED), "it finishes")


def test_refused_it_is_checkpointed_stopped_and_billed_and_goes_on_to_its_end_when_it_may(
    site: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    activate(site, "budgets:\n  - {name: team, amount: $1000000, period: month, top_up: false}\n")
    running = started(site, monkeypatch, tmp_path / "finish")
    price_rises(site, running.views["spot"].attempts[0], "5")
    running.until(running.all(JobState.PAUSED_BUDGET), "it is stopped and waits")
    view = running.views["spot"]
    first = view.attempts[0]
    assert first.cause is Cause.MONEY_REFUSED
    assert "a job gets no more money than at admission" in wait_text(view.waiting)
    told = first.stop_requested_at
    assert told is not None
    assert any(saved.at >= told for saved in first.checkpoints), "saved once more when it was told to stop"
    with site.store.reading() as look:
        balance, decisions = look.balance(view.id), look.decisions(job_id=view.id)
    assert (ActionKind.EXTEND, Answer.DENY) in {(one.action, one.answer) for one in decisions}
    assert balance[MoneyKind.CASH].held == Money.ZERO
    assert first.up_since is not None
    assert first.gone_at is not None
    seconds = (first.gone_at - first.up_since) / timedelta(seconds=1)
    spent = float(balance[MoneyKind.CASH].spent.dollars)
    assert seconds <= spent <= 5 * (seconds + 1), "each second at the price that was in force"

    activate(site)
    extend(site, view, JobLimits(), by=ANN)
    running.until(lambda: bool(running.views["spot"].attempts[-1].resumed_from), "it has found its checkpoint")
    assert running.views["spot"].attempts[-1].resumed_from == max(
        (saved.id for saved in first.checkpoints), key=lambda id: int(id.rpartition("-")[2])
    )
    (tmp_path / "finish").touch()
    running.until(running.all(JobState.SUCCEEDED), "it finishes")
    running.until(lambda: running.views["spot"].closed, "it is closed")
    with site.store.reading() as look:
        assert look.balance(view.id)[MoneyKind.CASH].held == Money.ZERO
