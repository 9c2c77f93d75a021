"""A refused request names what would pass: judged by the same gate, and entered as printed.

Played with the real use cases, policies and store across a month's end, with prices set by the test.
"""

import shlex
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.app.billing import budgets
from broker.app.billing.budget_documents import BudgetLine
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.extension import extend
from broker.app.jobs.preview import Preview, preview
from broker.core.errors import Alternative, NotAllowed
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from broker.core.values.units import parse_duration, parse_money
from broker.store import Store, open_store
from tests.actors import ANN
from tests.counts import FULL
from tests.empty_store import empty_store
from tests.money.moves import ZONES, job_text
from tests.money.test_holds import PLAIN, PlayedWorld

START = datetime(2026, 11, 30, 14, tzinfo=UTC)  # ten hours of November remain
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)
HOUR, MINUTE, CENT = timedelta(hours=1), timedelta(minutes=1), Money.usd("0.01")
MONTHLY = "budgets: [{name: monthly, amount: $AMOUNT, period: month}]\n"
VAST = {"providers": "vast", "capacity": "on_demand"}  # $3 an hour, by the hour
OTHER = {
    "providers": "gcp",
    "capacity": "on_demand",
    "max_duration": "3d",
    "max_cost": "$50",
}  # $5 an hour until December


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(empty_store(tmp_path / "store.db"), clock=SystemClock())
    yield opened
    opened.close()


def begun(store: Store, policy: str, **said: Any) -> tuple[PlayedWorld, JobView]:
    """A job of $3 an hour beside another that holds $50 in November."""
    played = PlayedWorld(store, START, policy)
    view = played.ask(**VAST, **said)
    played.ask(**OTHER)
    return played, view


def refused(played: PlayedWorld, view: JobView, more: JobLimits) -> tuple[tuple[Alternative, ...], str]:
    with pytest.raises(NotAllowed) as found:
        extend(played.world.broker, view, more, by=ANN)
    assert found.value.alternatives or "ask the owner of stage.yaml:" in found.value.hint
    return found.value.alternatives, found.value.hint


def typed(played: PlayedWorld, line: str) -> JobLimits:
    """The limits that the printed command requests."""
    program, *words, job = shlex.split(line)[:4]
    assert [program, *words] == ["gpubroker", "jobs", "extend"]
    assert played.world.views()
    assert job in {view.id for view in played.world.views()}
    options = shlex.split(line)[4:]
    said = dict(zip(options[::2], options[1::2], strict=True))
    cost, time = said.get("--max-cost"), said.get("--max-duration")
    return JobLimits(parse_money(cost) if cost else None, parse_duration(time) if time else None)


def test_the_most_money_that_fits_is_told_to_the_cent(store: Store) -> None:
    """Of $77, another job holds $50: $27 remain. All of the requested $28 would be used in November, at $3 an hour."""
    played, view = begun(store, MONTHLY.replace("AMOUNT", "77"), max_cost="$20", max_duration="3d")
    (now, later), hint = refused(played, view, JobLimits(max_cost=Money.usd(28)))
    assert (now.max_cost, now.max_duration, now.not_before, now.needs_approval) == (Money.usd(27), None, None, False)
    assert now.instruction == f"gpubroker jobs extend {view.id} --max-cost '$27.00'"
    assert now.instruction in hint
    assert (later.max_cost, later.not_before) == (Money.usd(28), DECEMBER)
    assert "--max-cost '$28.00' from 2026-12-01 00:00 UTC on" in hint
    refused(played, view, JobLimits(max_cost=Money.usd(27) + CENT))
    assert extend(played.world.broker, view, typed(played, now.instruction), by=ANN).max_cost == Money.usd(27)


def test_the_most_time_that_fits_is_told_to_the_minute(store: Store) -> None:
    """$27 last nine hours; the provider bills by the hour, and stopping takes two minutes: 7 h 58 min remain."""
    played, view = begun(store, MONTHLY.replace("AMOUNT", "77"), max_duration="5h")
    (now, later), _ = refused(played, view, JobLimits(max_duration=20 * HOUR))
    assert now.max_duration == 7 * HOUR + 58 * MINUTE
    assert now.instruction == f"gpubroker jobs extend {view.id} --max-duration 7h58m"
    assert (later.max_duration, later.not_before) == (20 * HOUR, DECEMBER)
    refused(played, view, JobLimits(max_duration=now.max_duration + MINUTE))
    after = extend(played.world.broker, view, typed(played, now.instruction), by=ANN)
    assert after.max_duration == now.max_duration


def test_each_limit_that_was_asked_for_is_tried_with_the_other_as_asked(store: Store) -> None:
    played, view = begun(store, MONTHLY.replace("AMOUNT", "77"), max_cost="$15", max_duration="4h")
    asked = JobLimits(Money.usd(60), 20 * HOUR)
    found, _ = refused(played, view, asked)
    assert [(one.max_cost, one.max_duration, one.not_before) for one in found] == [
        (Money.usd(27), 20 * HOUR, None),
        (Money.usd(60), 7 * HOUR + 58 * MINUTE, None),
        (Money.usd(60), 20 * HOUR, DECEMBER),
    ]


def test_what_fits_in_no_later_month_is_not_promised(store: Store) -> None:
    played, view = begun(store, MONTHLY.replace("AMOUNT", "77"), max_cost="$20", max_duration="30d")
    (now,), hint = refused(played, view, JobLimits(max_cost=Money.usd(1000)))
    assert now.max_cost == Money.usd(27)
    assert hint.startswith("each would be allowed:\n")


def test_a_request_beyond_two_months_says_the_first_that_has_room(store: Store) -> None:
    """Others hold $100 in November and $39 in December: neither has room for $125, and $30 and $91 fit into the two."""
    played, view = begun(store, MONTHLY.replace("AMOUNT", "130"), max_cost="$20", max_duration="30d")
    played.ask(**{**OTHER, "max_cost": "$89"})
    now, later = refused(played, view, JobLimits(max_cost=Money.usd(125)))[0]
    assert now.max_cost == Money.usd(121)
    assert later.not_before == datetime(2027, 1, 1, tzinfo=UTC)


def test_a_period_that_ends_outside_of_working_hours_is_not_promised(store: Store) -> None:
    """The first of December begins at night. The rule about hours allows the request now."""
    hours = "guardrails: [{name: office, working_hours: {from: '06:00', to: '22:00'}}]\n"
    played, view = begun(store, MONTHLY.replace("AMOUNT", "77") + hours, max_cost="$20", max_duration="3d")
    (now,), _ = refused(played, view, JobLimits(max_cost=Money.usd(28)))
    assert now.max_cost == Money.usd(27)


def test_a_freeze_is_no_reason_to_speak_of_budgets(store: Store) -> None:
    freeze = "guardrails: [{name: frozen, freeze: {from: 2026-11-30, to: 2026-12-02}}]\n"
    played = PlayedWorld(store, START, MONTHLY.replace("AMOUNT", "77"))
    view = played.ask(**VAST, max_cost="$20", max_duration="3d")
    more = MONTHLY.replace("AMOUNT", "77") + freeze
    text = f"version: 1\npolicy: stage\ndefaults: {{allow_stale_prices: true}}\n{more}"
    store.activate_policy({"stage.yaml": text}, by="cat")
    with pytest.raises(NotAllowed) as found:
        extend(played.world.broker, view, JobLimits(max_cost=Money.usd(28)), by=ANN)
    assert (found.value.alternatives, found.value.hint) == ((), "")


def test_where_nothing_passes_it_says_whom_to_ask(store: Store) -> None:
    policy = "budgets: [{name: monthly, amount: $77, period: month, top_up: false}]\n"
    played, view = begun(store, policy, max_cost="$20", max_duration="3d")
    found, hint = refused(played, view, JobLimits(max_cost=Money.usd(28)))
    assert not found
    assert hint.startswith("neither a lower limit nor a later budget period would help; ")
    assert hint.endswith("ask the owner of stage.yaml:4")


def test_what_others_hold_may_be_waited_for(store: Store) -> None:
    """Of $77, the job itself holds $20 and another one $50: $30 fit once that one has released $3."""
    played, view = begun(store, MONTHLY.replace("AMOUNT", "77"), max_cost="$20", max_duration="3d")
    _, hint = refused(played, view, JobLimits(max_cost=Money.usd(30)))
    assert "once other jobs have released $3.00 of what they hold (`gpubroker budget monthly`)" in hint


def test_what_would_be_asked_about_is_marked(store: Store) -> None:
    policy = (
        MONTHLY.replace("AMOUNT", "77") + "guardrails: [{name: big, approve_above: {cost: $22, approvers: [cat]}}]\n"
    )
    played, view = begun(store, policy, max_cost="$20", max_duration="3d")
    (now, _), hint = refused(played, view, JobLimits(max_cost=Money.usd(28)))
    assert now.needs_approval
    assert "'$27.00' (needs approval)" in hint


def test_the_same_request_passes_once_its_time_has_come(store: Store) -> None:
    played, view = begun(store, MONTHLY.replace("AMOUNT", "77"), max_cost="$20", max_duration="3d")
    played.world.look()
    (_, later), _ = refused(played, played.view(view), JobLimits(max_cost=Money.usd(60)))
    assert later.not_before == DECEMBER
    played.until(DECEMBER + MINUTE)
    assert played.view(view).state is JobState.PAUSED_BUDGET, "its money has not lasted until then"
    extend(played.world.broker, played.view(view), typed(played, later.instruction), by=ANN)
    played.passes(HOUR)
    assert len(played.view(view).attempts) == 2


def planned(played: PlayedWorld, **said: Any) -> Preview:
    job = parse_job(job_text("next", {**PLAIN, **VAST, **said}), file="job.yaml", now=START)
    return preview(played.world.broker, job, by=ANN)


def test_a_refused_job_says_which_lower_limits_and_which_later_period_pass(store: Store) -> None:
    played = PlayedWorld(store, START, MONTHLY.replace("AMOUNT", "77"))
    played.ask(**OTHER)
    seen = planned(played, max_cost="$28", max_duration="3d")
    assert seen.exit_code == 3
    assert [(one.instruction, one.not_before) for one in seen.alternatives or ()] == [
        ("`max_cost: $27.00` in the job file", None),
        ("`max_duration: 7h58m` in the job file", None),
        ("the job as it is", DECEMBER),
    ]
    assert planned(played, max_cost="$27.01", max_duration="3d").exit_code == 3
    assert planned(played, max_cost="$28", max_duration="7h59m").exit_code == 3
    assert planned(played, max_cost="$28", max_duration="7h58m").exit_code == 0
    accepted = planned(played, max_cost="$27", max_duration="3d")
    assert (accepted.exit_code, accepted.alternatives) == (0, None)
    played.ask(**VAST, max_cost="$27", max_duration="3d")


def test_a_job_that_no_lower_limit_helps_says_so(store: Store) -> None:
    policy = MONTHLY.replace("AMOUNT", "77") + "guardrails: [{name: cheap, max_price_per_gpu_hour: $9}]\n"
    played = PlayedWorld(store, START, policy.replace("month}", "fixed, from: 2026-01-01, to: 2026-01-31}"))
    assert planned(played, max_cost="$28", max_duration="3d").alternatives == []


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(12 if FULL else 4))
def test_what_is_said_to_pass_passes_and_a_step_more_does_not(store: Store, seed: int) -> None:
    draw = Random(seed)
    zone, period = draw.choice(ZONES), draw.choice(("day", "week", "month", "quarter"))
    amount = draw.choice((60, 90, 200))
    policy = f"budgets: [{{name: any, amount: ${amount}, period: {period}, timezone: {zone}}}]\n"
    played = PlayedWorld(store, START + timedelta(minutes=draw.randrange(3000)), policy)
    view = played.ask(**VAST, max_cost=f"${draw.randrange(4, 30)}", max_duration=f"{draw.randrange(4, 80)}h")
    for _ in range(3):
        with suppress(NotAllowed):
            played.ask(**OTHER | {"max_cost": f"${draw.randrange(5, 60)}"})
    asked = JobLimits(Money.usd(draw.randrange(300, 2000)), timedelta(hours=draw.randrange(100, 2000)))
    try:
        extend(played.world.broker, view, asked, by=ANN)
        return  # a budget by day has room for any time
    except NotAllowed as error:
        now = [one for one in error.alternatives if one.not_before is None]
    for one in now:
        cost, time = one.max_cost, one.max_duration
        assert cost is not None
        assert time is not None
        beyond = JobLimits(cost + CENT, time) if cost != asked.max_cost else JobLimits(cost, time + MINUTE)
        refused(played, view, beyond)
    if now:
        done = extend(played.world.broker, view, typed(played, draw.choice(now).instruction), by=ANN)
        assert done.max_cost in {one.max_cost for one in now}
    for line in budgets.budgets(played.world.broker):
        assert all(held <= line.limit for held in by_period(line).values())


def by_period(line: BudgetLine) -> dict[datetime, Money]:
    found: dict[datetime, Money] = {}
    for _, share in line.held_by_job:
        found[share.period[0]] = found.get(share.period[0], Money.ZERO) + share.held
    return found


def test_a_limit_that_would_let_the_job_fall_back_to_a_dearer_place_is_not_promised(store: Store) -> None:
    """With up to ten hours it may also run at gcp, at $5 an hour: 7 h 58 min at $3 fit, but more would be held."""
    short = "guardrails: [{name: short, max_job_duration: 10h, when: 'offer.provider == \"gcp\"'}]\n"
    played = PlayedWorld(store, START, MONTHLY.replace("AMOUNT", "77") + short)
    played.ask(**VAST, max_cost="$30", max_duration="3d")
    played.ask(**VAST, max_cost="$20", max_duration="3d")
    seen = planned(played, providers="vast, gcp", max_cost="$28", max_duration="3d")
    assert [one.instruction for one in seen.alternatives or ()] == [
        "`max_cost: $27.00` in the job file",
        "the job as it is",
    ]
    assert planned(played, providers="vast, gcp", max_cost="$28", max_duration="7h58m").exit_code == 3
