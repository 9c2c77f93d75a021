"""The fifteen defects by which money was once lost, each as a change of one place of the program that restores the
defect, with the test that finds it. `tests.money.planted` plants them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """``finding``: its number, with a letter if it takes two faults.

    ``old`` occurs once in ``module`` (a path from the root of the repository), and is replaced by ``new``. ``scripts``:
    the property fails within this number of its first scripts; 0: the property does not cover it, or not within
    minutes. ``tests``: pytest's names of tests that fail.
    """

    finding: str
    what: str
    module: str
    old: str
    new: str
    tests: tuple[str, ...]
    scripts: int = 0


FAULTS = (
    PlantedFault(
        "1",
        "a hold is spread evenly over max_duration",
        "broker/reconciler/admission/admission.py",
        "    return burn_of(amount, exposure.rate, exposure.egress, now, "
        "longest_billed(exposure, max_duration, STOP_GRACE))",
        "    return Burn.evenly(amount, (now, now + max_duration))",
        ("tests/money/test_holds.py", "tests/reconciler/test_admission_by_hand.py"),
    ),
    PlantedFault(
        "2",
        "a writer's snapshot is taken while it waits for the lock",
        "broker/store/engine/database.py",
        '"BEGIN ISOLATION LEVEL READ COMMITTED;"',
        '"BEGIN ISOLATION LEVEL REPEATABLE READ;"',
        (
            "tests/system/test_postgres_defaults.py::test_a_writer_that_waited_for_its_turn_sees_what_the_one_before_committed",
        ),
    ),
    PlantedFault(
        "3",
        "every settlement starts from all entries",
        "broker/reconciler/settlement/settlement.py",
        "    if meter is not None and fits(meter, known := rates(meter.since), usage):",
        "    if meter is not None and fits(meter, known := rates(meter.since), usage) and not now:",
        ("tests/reconciler/test_settled_periods.py::test_a_settlement_costs_the_same_after_a_long_history",),
    ),
    PlantedFault(
        "4",
        "an approval covers whatever else the rule may ask about",
        "broker/core/policy/approvals.py",
        "    return covers((grant.facts or {}).get(verdict.name, ()), verdict.looked_at)",
        "    return True",
        ("tests/app/test_approved_facts.py",),
    ),
    PlantedFault(
        "5",
        "a launch that was delayed is not judged again",
        "broker/reconciler/admission/launch_check.py",
        "        last = look.last_judged(view.id, attempt.number)\n        return (\n",
        "        last = look.last_judged(view.id, attempt.number)\n        if now:\n            return True\n"
        "        return (\n",
        ("tests/reconciler/test_delayed_launch.py",),
        scripts=30,
    ),
    PlantedFault(
        "6",
        "what is held already is dated anew at a later placement, and no budget is asked about that",
        "broker/reconciler/admission/admission.py",
        "        verdicts = tuple(policy.judge(action, facts_for(action)))\n        held = balance[",
        "        seen = action if top_up else replace(action, burns={}, hold=None)\n"
        "        verdicts = tuple(policy.judge(seen, facts_for(action)))\n        held = balance[",
        ("tests/reconciler/test_delayed_launch.py::test_a_month_whose_budget_another_job_holds_is_not_paid_from",),
        scripts=30,
    ),
    PlantedFault(
        "7a",
        "a machine is not billed while it starts",
        "broker/reconciler/interpret.py",
        "    if seen.since is not None and attempt.up_since is None and not seen.no_capacity:",
        "    if seen.state is EngineState.UP and seen.since is not None and attempt.up_since is None:",
        ("tests/reconciler/test_growth.py::test_machines_that_start_and_fail_are_billed_and_do_not_go_on_for_ever",),
        scripts=30,
    ),
    PlantedFault(
        "7b",
        "launches that fail are repeated for ever",
        "broker/reconciler/decide.py",
        "        case _ if view.failed_launches >= view.job.retry.launches:",
        "        case _ if view.failed_launches < 0:",
        ("tests/reconciler/test_growth.py::test_launches_that_fail_in_a_row_pause_the_job_with_the_evidence",),
    ),
    PlantedFault(
        "8",
        "a machine is ended before what is new of it is recorded",
        "broker/reconciler/loop.py",
        "        if found:\n            self._recording.note(view,",
        "        if removing:\n            self._engines(attempt.engine).cancel(attempt.handle)\n"
        "        if found:\n            self._recording.note(view,",
        ("tests/reconciler/test_isolation.py",),
    ),
    PlantedFault(
        "9",
        "what a start moves is held, and never booked",
        "broker/reconciler/settlement/settlement.py",
        "        egress = to_be_posted(attempt, meter.moved)\n        if attempt.refused",
        "        egress: Mapping[str, Money] = {}\n        if attempt.refused",
        ("tests/reconciler/settlement/test_egress.py",),
        scripts=30,
    ),
    PlantedFault(
        "10",
        "a job that cannot be read stops everything",
        "broker/store/jobs/quarantine.py",
        "            except UnreadableJob:  # listed in `jobs`\n                continue\n",
        "            except UnreadableJob:\n                raise\n",
        ("tests/store/jobs/test_quarantine.py",),
        scripts=30,
    ),
    PlantedFault(
        "11",
        "open jobs are asked for in words that SQLite has no index for",
        "broker/store/tables/jobs.py",
        'UNCLOSED = text("NOT job.closed")',
        'UNCLOSED = text("job.closed IS NOT TRUE")',
        ("tests/store/jobs/test_open_jobs.py", "tests/app/test_query_plans.py"),
    ),
    PlantedFault(
        "12",
        "what was settled too much is taken back in the period of now",
        "broker/reconciler/settlement/settlement.py",
        "                covers=(one.start, one.end),\n",
        "                covers=(one.start, one.end) if sign > 0 else (now, now),\n",
        ("tests/reconciler/test_settled_periods.py",),
    ),
    PlantedFault(
        "13",
        "a pool without capacity is asked with every look",
        "broker/reconciler/pools.py",
        "        if rest.banned or abs(now - rest.since) < rest.until - rest.since",
        "        if now < rest.since",
        ("tests/reconciler/test_growth.py::test_a_pool_without_capacity_is_asked_ever_less_often",),
    ),
    PlantedFault(
        "14",
        "a report of spend loads every job there ever was",
        "broker/app/billing/report.py",
        "        found = dict(look.spent_by(by, period))\n",
        "        look.jobs()\n        found = dict(look.spent_by(by, period))\n",
        ("tests/app/test_query_plans.py",),
    ),
    PlantedFault(
        "15",
        "a machine that waits in a queue is taken for one that starts",
        "broker/reconciler/signals.py",
        "        before = self._seen.get(engine.name, {})\n",
        "        queued, pending = EngineState.QUEUED, EngineState.PENDING\n"
        "        seen = {h: replace(o, state=pending) if o.state is queued else o for h, o in seen.items()}\n"
        "        before = self._seen.get(engine.name, {})\n",
        ("tests/reconciler/test_queued.py",),
    ),
)
