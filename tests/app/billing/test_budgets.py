"""Budgets in use: later charges, marks told once, work stopped, forecasts."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from broker.app.alerts import notify
from broker.app.billing import budgets
from broker.app.billing.budget_documents import BudgetResult
from broker.app.billing.budgets import StoppingBudgets
from broker.app.billing.budgets import budgets as lines
from broker.app.jobs.reasons import stop_text
from broker.app.jobs.submit import submit
from broker.app.wiring import Broker
from broker.cli.billing import budget_view
from broker.core.errors import NotAllowed
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.notices import Notice
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags, move
from broker.reconciler.controllers.enforcement import Enforcement
from broker.reconciler.settlement.settlement import tags_of
from tests.actors import ANN, BOB
from tests.controllers import Asking

LATER = Money.usd("100.01")


@pytest.fixture(autouse=True)
def mailed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was sent, by its title."""
    sent: list[str] = []

    def send(notice: Notice, address: object) -> str:
        sent.append(notice.title)
        return ""

    monkeypatch.setattr(notify, "_send", send)
    return sent


def grant(broker: Broker, **more: str) -> None:
    terms = {"name": "pretend", "amount": "$100", "period": "quarter", "counts": "[sandbox]", **more}
    said = ", ".join(f"{key}: {value}" for key, value in terms.items())
    broker.store.activate_policy({"test.yaml": f"version: 1\npolicy: t\nbudgets: [{{{said}}}]\n"}, by="test")
    broker.settings.notify = {"owner": SecretStr("json://nobody")}


def job(broker: Broker, cost: str = "$5", more: str = "") -> Job:
    text = (
        f"name: count\nrun: 'true'\nresources: {{accelerators: 'L4:1'}}\nmax_cost: {cost}\n"
        f"constraints: {{providers: [sandbox]}}\n{more}"
    )
    return parse_job(text, file="job.yaml", now=broker.clock.now())


def charge(broker: Broker, view: JobView, amount: Money, name: str = "late") -> None:
    """What a provider bills long after, above every hold."""
    now = broker.clock.now()
    with broker.store.writing() as tx:
        tx.post(
            move(
                Movement.ADJUST,
                amount,
                movement_id=f"{view.id}/{name}",
                money=MoneyKind.SANDBOX,
                at=now,
                covers=(now, now),
                tags=tags_of(view),
            )
        )


def test_a_later_charge_overdraws_the_budget_alerts_and_blocks(broker: Broker, mailed: list[str]) -> None:
    grant(broker)
    view = submit(broker, job(broker), by=ANN)
    charge(broker, view, LATER)
    (line,) = lines(broker)
    assert (line.use.spent, line.left) == (LATER, -(view.max_cost or Money.ZERO) - Money.usd("0.01"))
    assert line.forecast.expected >= LATER
    told = budgets.queue_notices(broker)
    assert [notice.key.rpartition("/")[2] for notice in told] == ["100%", "forecast", "exceeded"]
    assert "No new job is admitted until there is room" in told[2].body
    notify.deliver(broker.store, broker.clock, broker.settings.notify)
    gravest = f"Budget pretend is exceeded by $0.01 for {line.period_name}"
    assert mailed == [f"gpubroker: 3 alerts: {gravest}, and 2 more"], "one incident, one message"
    with pytest.raises(NotAllowed, match=r"the budget is overdrawn by \$5\.01"):
        submit(broker, job(broker, "$1"), by=ANN)
    assert set(lines(broker)[0].marks) == {"50%", "80%", "100%", "forecast", "exceeded"}


def test_each_mark_is_told_once_whoever_looks(
    broker: Broker, new_broker: Callable[[], Broker], mailed: list[str]
) -> None:
    grant(broker, alerts="[50%, 80%]")
    view = submit(broker, job(broker), by=ANN)
    assert budgets.queue_notices(broker) == []
    charge(broker, view, Money.usd(50))
    assert len(budgets.queue_notices(broker)) == 1
    restarted = new_broker()
    restarted.settings.notify = broker.settings.notify
    for each in (broker, restarted):
        assert budgets.queue_notices(each) == []
        notify.deliver(each.store, each.clock, each.settings.notify)
    charge(restarted, view, Money.usd(30), "more")
    (notice,) = budgets.queue_notices(restarted)
    assert notice.title.startswith("Budget pretend: 80% of $100.00 is spent in Q")
    notify.deliver(broker.store, broker.clock, broker.settings.notify)
    assert len(mailed) == len(set(mailed)) == 2
    assert len(budgets.notices_about(broker, "pretend")) == 2


def test_another_amount_is_alerted_about_anew(broker: Broker) -> None:
    grant(broker, alerts="[50%]")
    charge(broker, submit(broker, job(broker), by=ANN), Money.usd(50))
    assert len(budgets.queue_notices(broker)) == 1
    grant(broker, alerts="[50%]", amount="$90")
    assert len(budgets.queue_notices(broker)) == 1


def test_a_delivery_that_fails_is_visible_and_tried_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    grant(broker, alerts="[50%]")
    charge(broker, submit(broker, job(broker), by=ANN), Money.usd(50))
    budgets.queue_notices(broker)
    monkeypatch.setattr(notify, "_send", lambda notice, address: "the service cannot be reached")
    notify.deliver(broker.store, broker.clock, broker.settings.notify)
    (waiting,) = budgets.notices_about(broker)
    assert (waiting.tries, waiting.error) == (1, "the service cannot be reached")
    assert waiting.next_try is not None
    (found,) = budgets.budget_details(broker)
    told = "\n".join(
        budget_view.detail_lines(found.model_copy(update={"on_own": Money.usd(20), "rented": Money.usd(30)}))
    )
    assert "spent: $20.00 on owned and reserved capacity, $30.00 rented" in told
    assert "not yet sent to owner, tried 1 time (the service cannot be reached): Budget pretend: 50%" in told
    assert found.notices[0].error == "the service cannot be reached"


def test_what_runs_is_stopped_with_the_rules_words(broker: Broker) -> None:
    grant(broker, action="stop", grace="10m")
    view = submit(broker, job(broker), by=ANN)
    with broker.store.writing() as tx:
        view = tx.append(view.id, [(1, ev.Launched(handle="x"))], broker.clock.now())
    later, over = [broker.clock.now()], StoppingBudgets(broker)

    def judge() -> bool:
        with broker.store.reading() as look:
            money = look.balance(view.id)
        enforcement = Enforcement(broker.store, broker.policy, lambda: later[0], over=lambda *about: over(*about))
        return Asking(enforcement, lambda: later[0])(view, money)

    charge(broker, view, Money.usd(95))
    budgets.queue_notices(broker)
    assert not judge()
    charge(broker, view, Money.usd("5.01"), "more")
    budgets.queue_notices(broker)
    later[0] += timedelta(minutes=9)
    assert not judge(), "within the grace"
    later[0] += timedelta(minutes=2)
    assert judge()
    with broker.store.reading() as look:
        stopped = look.job(view.id)
        assert look.decisions(job_id=view.id)[0].verdicts
    assert stopped is not None
    assert stopped.attempts[0].stop_requested is Cause.STOPPED_BY_POLICY
    assert "budget pretend of $100.00" in stop_text(stopped.attempts[0].stop_reason)
    assert "test.yaml:3" in stop_text(stopped.attempts[0].stop_reason)


def test_a_budget_per_user_is_counted_for_each_user(broker: Broker) -> None:
    grant(broker, amount="$7", per="user")
    mine = submit(broker, job(broker), by=ANN)
    submit(broker, job(broker), by=BOB)
    with pytest.raises(NotAllowed, match=r"budget pretend/ann of \$7\.00 .*\$2\.00 is left"):
        submit(broker, job(broker), by=ANN)
    charge(broker, mine, Money.usd("7.01"))
    shares = {line.spec.id: line.use.spent for line in lines(broker)}
    assert shares == {"pretend/ann": Money.usd("7.01"), "pretend/bob": Money.ZERO}
    exceeded = [notice.key for notice in budgets.queue_notices(broker) if notice.key.endswith("exceeded")]
    assert [key.split("/")[1:3] for key in exceeded] == [["pretend", "ann"]]
    assert [found.id for found in budgets.budget_details(broker, "pretend")] == ["pretend/ann", "pretend/bob"]
    assert [found.id for found in budgets.budget_details(broker, "pretend/bob")] == ["pretend/bob"]


def test_a_budget_per_user_stops_only_the_jobs_of_who_exceeded_it(broker: Broker) -> None:
    grant(broker, amount="$7", per="user", action="stop")
    mine, other = submit(broker, job(broker), by=ANN), submit(broker, job(broker), by=BOB)
    charge(broker, mine, Money.usd("7.01"))
    charge(broker, other, Money.usd(7))  # exactly the amount
    budgets.queue_notices(broker)
    policy = broker.policy()
    stopping = StoppingBudgets(broker)(policy, broker.clock.now())
    ids = [spec.id for view in (mine, other) for spec in policy.budgets(view.job, view.user)]
    assert [stopping[id][0].over_since is not None for id in ids] == [True, False]


def test_a_budget_per_project_is_for_jobs_of_a_project(broker: Broker) -> None:
    grant(broker, amount="$7", per="project")
    policy = broker.policy()
    assert [spec.id for spec in policy.budgets(job(broker, more="project: x"), "ann")] == ["pretend/x"]
    assert policy.budgets(job(broker), "ann") == []


def test_a_budget_that_only_alerts_lets_more_pass_than_there_is(broker: Broker) -> None:
    grant(broker, action="alert", amount="$7")
    submit(broker, job(broker), by=ANN)
    submit(broker, job(broker), by=ANN)
    assert lines(broker)[0].left == Money.usd(-3)
    assert not [notice for notice in budgets.queue_notices(broker) if not notice.key.endswith("forecast")], (
        "nothing is spent"
    )
    charge(broker, submit(broker, job(broker), by=ANN), Money.usd("7.01"))
    (told,) = [notice for notice in budgets.queue_notices(broker) if notice.key.endswith("exceeded")]
    assert "Jobs are still admitted" in told.body


def test_what_jobs_hold_alerts_nobody(broker: Broker) -> None:
    """All of the budget is held; little of it is spent, and little is expected."""
    grant(broker, amount="$4.70", alerts="[10%, 80%, 90%, forecast 80%, forecast]")
    for _ in range(2):
        view = submit(broker, job(broker, more="work: 1h\nmax_duration: 158m\n"), by=ANN)
    (line,) = lines(broker)
    assert line.use.held > Money.usd("4.23"), "90 %"
    assert line.forecast.expected < Money.usd("3.76"), "80 %"
    assert budgets.queue_notices(broker) == []
    charge(broker, view, Money.usd("0.47"))
    (notice,) = budgets.queue_notices(broker)
    assert notice.title == f"Budget pretend: 10% of $4.70 is spent in {line.period_name}"
    assert "running and waiting jobs hold $4.6" in notice.body


def test_spending_and_forecast_are_told_apart_each_once(broker: Broker) -> None:
    grant(broker, alerts="[50%, forecast 50%, forecast 55%]")
    view = submit(broker, job(broker), by=ANN)
    charge(broker, view, Money.usd(55))
    told = {notice.key.rpartition("/")[2]: notice for notice in budgets.queue_notices(broker)}
    assert set(told) == {"50%", "forecast 55%"}, "the highest of each kind"
    assert told["50%"].title.startswith("Budget pretend: 50% of $100.00 is spent in")
    assert told["forecast 55%"].title.endswith("the limit is $100.00, 55% or more of it")
    assert told["forecast 55%"].body.startswith("By forecast, not by spending: $55.00 of $100.00 is spent")
    assert budgets.queue_notices(broker) == []


def test_the_days_of_a_period_add_up(broker: Broker) -> None:
    grant(broker)
    view = submit(broker, job(broker), by=ANN)
    charge(broker, view, Money.usd(3))
    (line,) = lines(broker)
    found = budgets.daily_spend(broker, line)
    assert found[0].total == Money.ZERO
    later: Any = [day.until for day in found]
    assert later == sorted(set(later))


def spent_daily(broker: Broker, amounts: list[str], *, workload: str | None = "training") -> None:
    """What attempts spent on each of the last days (UTC), the last of them yesterday."""
    today = broker.clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
    with broker.store.writing() as tx:
        for number, amount in enumerate(reversed(amounts), start=1):
            noon = today - timedelta(days=number, hours=-12)
            tx.post(
                move(
                    Movement.SETTLE, Money.usd(amount), movement_id=f"past/{workload}/{number}", at=noon,
                    money=MoneyKind.SANDBOX, covers=(noon, noon + timedelta(hours=1)),
                    tags=Tags("past", "ann", workload=workload),
                )
            )  # fmt: skip


def test_what_own_machines_cost_to_the_end_of_a_paid_hour_is_not_rented(broker: Broker) -> None:
    grant(broker, amount="$100000")
    now = broker.clock.now()
    own = Tags("past", "ann", workload="training", capacity_type=CapacityType.OWNED)
    with broker.store.writing() as tx:
        tx.post(
            move(
                Movement.SETTLE, Money.usd("8"), movement_id="ahead", at=now, money=MoneyKind.SANDBOX,
                covers=(now, now + timedelta(minutes=1)), tags=own,
            )
        )  # fmt: skip
    (line,) = lines(broker)
    assert budgets.spend_on_owned(broker, line) == line.use.spent == Money.usd("8")


def test_the_days_before_say_what_a_period_will_come_to(broker: Broker) -> None:
    grant(broker, amount="$100000")
    spent_daily(broker, ["24"] * 30)
    spent_daily(broker, ["0"] * 29 + ["5000"], workload=None)  # a purchase is planned: it is no pace
    (line,) = lines(broker)
    ahead, left = line.forecast, line.use.period_end - line.at
    assert ahead.trend is not None
    assert ahead.low is not None
    assert ahead.high is not None
    rest = float((ahead.trend - line.use.spent).dollars)
    assert rest == pytest.approx(24 * (left / timedelta(days=1)), rel=0.01)
    assert ahead.low <= ahead.expected <= ahead.high
    shown = BudgetResult.of(line).forecast
    assert (shown.low, shown.high) == (ahead.low, ahead.high)


def test_a_few_days_of_spending_are_no_pace(broker: Broker) -> None:
    grant(broker, amount="$100000")
    spent_daily(broker, ["24"] * 4)
    assert lines(broker)[0].forecast.high is None
