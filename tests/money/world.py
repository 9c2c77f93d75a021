"""One broker in the money tests: the real use cases, reconciler, store, policies, gate and ledger, with a simulated
cloud, market, run folders and clock. The script sets the times between ticks; in between, nodes stop according to their
leases.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from unittest import mock

from sqlalchemy import func, select

from broker.app.billing import budgets
from broker.app.jobs import approvals, jobs, submit
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.extension import extend
from broker.app.service import passes
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, StoreProblem
from broker.core.events.outcomes import Cause
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.market.offers import CapacityType
from broker.core.ports import Launch, PolicySet
from broker.core.values.money import Money
from broker.core.values.units import parse_duration
from broker.ledger.entries import Entry, Movement
from broker.settings import Settings
from broker.store import Store
from tests.actors import EVERYBODYS, person
from tests.money.clock import StageClock
from tests.money.cloud import ENGINE, CloudMachine, MachineFate, ScriptedCloud
from tests.money.folders import Folders
from tests.money.host import Errors, Witness, loaded, plugged_in
from tests.money.launches import Judged, objections
from tests.money.market import StageMarket
from tests.money.moves import MOVES, ExpectedBudget, ExpectedPolicy, job_text, terms_of
from tests.money.periods import period_of
from tests.unreadable import DAMAGES, damage_view

BEGINS = datetime(2026, 10, 24, 20, 30, tzinfo=UTC)  # a Saturday evening; Europe's clocks are set back that night
MICROSECOND, SECOND, MINUTE = timedelta(microseconds=1), timedelta(seconds=1), timedelta(minutes=1)


class Violation(AssertionError):
    """``rule``: the part of the promise that was broken."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


class MoneyWorld:
    """``store``: an empty one. ``ignoring``: parts of the promise that are not checked."""

    def __init__(self, store: Store, begins: datetime = BEGINS, ignoring: frozenset[str] = frozenset()) -> None:
        self.store, self.ignoring = store, ignoring
        self.clock = StageClock(begins)
        self.folders = Folders(self.clock)
        self.cloud = ScriptedCloud(self.clock, self.folders, self._launched)
        self.market = StageMarket(begins)
        self.judged: list[Judged] = []
        self.looks: list[datetime] = []  # ticks that nothing disturbed
        self.in_force: list[tuple[datetime, ExpectedPolicy | None]] = []
        self.admitted: list[tuple[int, bool, Entry]] = []  # policy in force, whether the clock was wrong, the hold
        self.found: list[Violation] = []
        self.names: list[str] = []
        self.approved: dict[str, list[tuple[str, str, Money]]] = {}  # by job: rule, provider, price per GPU
        self._entries = 0
        self._garbled: dict[str, str] = {}
        self._errors = Errors()
        self.clock_was_wrong = False
        self.did = Counter[str]()  # outcomes of the moves
        self.restart()
        self.market.tell(store, begins, begins)
        self._apply(None)

    # --- the broker -------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Start a new broker process, which knows only what is stored."""
        plugged = replace(plugged_in(), load_policies=self._policies)
        settings = Settings(home=Path("/nowhere"), store=self.store_url, runs="s3://runs/here")
        self.broker = Broker(settings, plugged, EVERYBODYS, store=self.store, clock=self.clock)
        self.broker._engines[ENGINE] = self.cloud
        with mock.patch.object(passes, "run_folders", return_value=self.folders):
            self.reconciler = passes.reconciler(self.broker)

    store_url = "postgresql://nowhere/stage"  # never opened: the store is passed in

    def _policies(self, files: Mapping[str, str]) -> PolicySet:
        text = files.get("stage.yaml")
        real = loaded(text) if text else plugged_in().load_policies({})
        return cast("PolicySet", Witness(real, self))  # it has all attributes of the real one

    def look(self) -> None:
        """Two ticks of the reconciler, a second apart if the first one did something."""
        for _ in range(2):
            if not self._tick():
                break
            self.passes(SECOND)

    def _tick(self) -> bool:
        failed = self.cloud.failed + self.folders.failed
        log = logging.getLogger("broker")
        log.addHandler(self._errors)
        try:
            steps = self.reconciler.tick().steps
            terms = self.terms
            if terms is not None and "action: stop" in terms.text:
                budgets.queue_notices(self.broker)
        except Exception as error:  # noqa: BLE001  # whatever it is, the process would end with it
            self._errors.seen.append(error)
            steps = 0
        finally:
            log.removeHandler(self._errors)
        disturbed = self.cloud.failed + self.folders.failed > failed
        errors, self._errors.seen = self._errors.seen, []
        if not disturbed and not self._garbled:
            self.looks.append(self.clock.true)
        if not disturbed:
            for one in errors:
                self._broken("works", f"a look failed although nothing was in its way: {one!r}", one)
        elif any(not isinstance(one, BrokerError) for one in errors):
            self.restart()
        return steps > 0

    def _broken(self, rule: str, what: str, error: BaseException | None = None) -> None:
        found = Violation(rule, what)
        found.__cause__ = error
        if rule not in self.ignoring:
            self.found.append(found)

    def passes(self, by: timedelta) -> None:
        """Let time pass without a tick."""
        self.clock.true += by
        self.cloud.until(self.clock.true)

    @property
    def terms(self) -> ExpectedPolicy | None:
        return self.in_force[-1][1]

    def views(self) -> list[JobView]:
        """Every job, oldest first, including tasks of arrays."""
        with self.store.reading() as look:
            return list(reversed(look.jobs(with_tasks=True)))

    def _apply(self, terms: ExpectedPolicy | None) -> None:
        self.note_admitted()
        if terms is not None:
            self.store.activate_policy({"stage.yaml": terms.text}, by="cat")
        self.in_force.append((self.clock.true, terms))

    def note_admitted(self) -> None:
        """Record that the holds since the last call were admitted under the policy in force."""
        from broker.store.ledger.ledger import entry_of
        from broker.store.schema.ledger import LedgerEntryRow

        with self.store._database.reading() as connection:
            newest = connection.scalar(select(func.max(LedgerEntryRow.id))) or 0
            if newest <= self._entries:
                return
            holds = (Movement.HOLD.value, Movement.TOP_UP.value)
            query = select(LedgerEntryRow).where(
                LedgerEntryRow.id > self._entries, LedgerEntryRow.movement.in_(holds), LedgerEntryRow.account == "held"
            )
            rows = [entry_of(row) for row in connection.execute(query)]
        self._entries = newest
        wrong = bool(self.clock.wrong_by)
        self.admitted += [(len(self.in_force) - 1, wrong, row) for row in rows]

    def _launched(self, launch: Launch) -> None:
        for rule, what in objections(self, launch):
            self._broken(rule, what)

    # --- the moves --------------------------------------------------------------------------------------------------

    def do(self, name: str, said: Mapping[str, Any]) -> None:
        """Make one move; missing arguments have their simplest value.

        A refusal by a use case is no error; any other exception is, including one of the store.
        """
        try:
            getattr(self, f"do_{name}")(**({key: values[0] for key, values in MOVES[name].items()} | dict(said)))
        except StoreProblem as error:  # nothing makes the store fail here: a run without a store would prove nothing
            self._broken("works", f"{name} found no store: {error}", error)
        except BrokerError:
            self.did["moves refused"] += 1
        except Violation:
            raise
        except Exception as error:  # noqa: BLE001  # told as what it is
            if name == "answer" or self.cloud.failed == 0:
                self._broken("works", f"{name} raised {error!r}", error)
        self.cloud.until(self.clock.true)

    def do_wait(self, span: str, looks: int) -> None:
        whole = self._to_period_end(span) if span.startswith("end") else parse_duration(span)
        for _ in range(looks):
            self.passes(whole / looks)
            self.look()
        if not looks:
            self.passes(whole)

    def _to_period_end(self, span: str) -> timedelta:
        before = parse_duration(span.removeprefix("end-"))
        budget = next(iter(self.terms.amounts), None) if self.terms else None
        budget = budget or ExpectedBudget("", "day", "UTC", "")
        end = period_of(budget, self.clock.true)[1]
        whole = end - before - self.clock.true
        return whole if SECOND < whole < timedelta(days=100) else 2 * before

    def do_submit(self, user: str, **said: Any) -> None:
        name = f"job{len(self.names) + 1}"
        broker = self.broker
        job = parse_job(job_text(name, said), file="job.yaml", now=self.clock.now())
        self.names.append(name)
        submit.submit(broker, job, by=person(user))

    def _job(self, number: int) -> JobView | None:
        open_ones = [view for view in self.views() if not view.closed]
        return open_ones[-1 - number % len(open_ones)] if open_ones else None

    def do_extend(self, job: int, max_cost: str, max_duration: str) -> None:
        view = self._job(job)
        if view is None:
            return
        more = JobLimits(
            Money.usd(max_cost.lstrip("$")) if max_cost else None,
            parse_duration(max_duration) if max_duration else None,
        )
        extend(self.broker, view, more, by=person(view.user))
        self.did["extensions"] += 1

    def do_cancel(self, job: int) -> None:
        view = self._job(job)
        if view is not None:
            jobs.cancel(self.broker, view, by=person(view.user))

    def do_answer(self, job: int, who: str, yes: bool) -> None:
        waiting = [view for view in self.views() if view.asked is not None]
        if not waiting:
            return
        view = waiting[job % len(waiting)]
        broker, by = self.broker, person(who or self._approver(view))
        if not yes:
            approvals.refuse(broker, view.id, by=by)
            self.did["requests refused"] += 1
            return
        asked = self._question(view)
        before = {rule for rule, _ in view.asked.yes} if view.asked else set()
        after = approvals.grant(broker, view.id, by=by)
        self.did["approvals"] += 1
        if asked is not None:
            provider, price = asked
            open_before = {q.rule for q in view.asked.open} if view.asked else set()
            still = {q.rule for q in after.asked.open} if after.asked else set()
            for rule in open_before - still - before:
                self.approved.setdefault(view.job.name, []).append((rule, provider, price))

    def _approver(self, view: JobView) -> str:
        """A person who may answer the first open request."""
        asked = view.asked
        return next((name for one in asked.open for name in one.approvers), "cat") if asked else "cat"

    def _question(self, view: JobView) -> tuple[str, Money] | None:
        """The place and the price per GPU that the approvers are asked about."""
        from broker.app.jobs.approval_reevaluation import last_decision
        from broker.core.policy.decisions import inputs_of

        with self.store.reading() as look:
            record = last_decision(look, view)
        inputs = inputs_of(record) if record else None
        if inputs is None or (placement := inputs.action.placement) is None:
            return None
        return placement.offer.provider, placement.offer.price_per_gpu or Money.ZERO

    def do_ahead(self, user: str, total: str, days: int) -> None:
        ahead = approvals.GrantRequest(
            Money.usd(total.lstrip("$")), self.clock.now() + timedelta(days=days), users=(user,)
        )
        approvals.give_standing(self.broker, ahead, by=person("cat"))

    def do_revoke(self, which: int) -> None:
        standing = approvals.standing_grants(self.broker)
        if standing:
            approvals.revoke(self.broker, standing[which % len(standing)].number, by=person("cat"))

    def do_policy(self, **said: Any) -> None:
        self._apply(terms_of(said, self.clock.now()))

    def do_price(self, pool: str, times: str, told: bool) -> None:
        self.passes(MICROSECOND)  # a launch at this moment was made at the previous price
        line = self.market.lines[pool]
        price = Money(max(round(line.true[-1][1].micros * float(times)), 1000))
        if line.true[-1][0] < self.clock.true and price < Money.usd("5000"):
            self.market.moves(pool, price, self.clock.true)
        if told:
            self.do_tell()

    def do_tell(self) -> None:
        # Never at the exact time of a tick: otherwise it would be unknown whether that tick knew of it.
        self.passes(MICROSECOND)
        self.market.tell(self.store, self.clock.true, self.clock.now())
        self.passes(MICROSECOND)

    def do_capacity(self, pool: str, there: bool) -> None:
        self.market.opens(pool, self.clock.true, available=there)
        self.do_tell()

    def do_fate(self, says: str, **said: Any) -> None:
        self.cloud.fate = MachineFate(**said, says=Cause(says) if says else None)

    def _machine(self, number: int) -> CloudMachine | None:
        live = self.cloud.live()
        return live[number % len(live)] if live else None

    def do_preempt(self, machine: int, noticed: bool) -> None:
        found = [one for one in self.cloud.live() if one.launch.placement.offer.capacity_type is CapacityType.SPOT]
        if found:
            self.cloud.take_back(found[machine % len(found)], noticed=noticed)

    def do_lose(self, machine: int) -> None:
        if (found := self._machine(machine)) is not None:
            self.cloud.lose(found)

    def do_kill_agent(self, machine: int) -> None:
        if (found := self._machine(machine)) is not None:
            self.cloud.kill_agent(found)

    def do_engine_fails(self, call: str, error: str, times: int) -> None:
        allowed = {"submit": None, "observe": ("retry", "crash"), "find": ("retry", "crash")}
        kinds = allowed.get(call, ("retry", "refused", "crash"))
        kind = error if kinds is None or error in kinds else "retry"
        self.cloud.failing[call] = [kind] * times

    def do_folder_fails(self, call: str, error: str, times: int) -> None:
        self.folders.failing[call] = [error] * times

    def do_silence(self, machine: int, silent: bool) -> None:
        if (found := self._machine(machine)) is not None:
            (self.folders.silent.add if silent else self.folders.silent.discard)(found.key)

    def do_garble(self, job: int, how: int) -> None:
        """Make the stored view of a job unreadable, until it is repaired."""
        view = self._job(job)
        if view is not None:
            self._garbled[view.id] = damage_view(self.store, view.id, list(DAMAGES.values())[how])

    def do_heal(self) -> None:
        for job_id, text in self._garbled.items():

            def as_it_was(_: str, text: str = text) -> str:
                return text

            damage_view(self.store, job_id, as_it_was)
        self._garbled.clear()
        self.cloud.failing.clear()
        self.folders.failing.clear()
        self.folders.silent.clear()

    def do_restart(self) -> None:
        self.restart()

    def do_wrong_clock(self, by: str, looks: int) -> None:
        self.note_admitted()
        self.clock_was_wrong = True
        self.clock.wrong_by = -parse_duration(by[1:]) if by.startswith("-") else parse_duration(by)
        for _ in range(looks):
            self.passes(MINUTE)
            self.look()
        self.note_admitted()
        self.clock.wrong_by = timedelta(0)
        self.look()

    # --- the end ----------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Cancel everything, stop all failures, and let time pass until every job is closed."""
        self.do_heal()
        self.do_tell()
        self.note_admitted()
        for view in self.views():
            if not view.state.final:
                jobs.cancel(self.broker, view, by=person(view.user))
        # Silence counts at most 30 s per tick; 15 minutes of it end machines that never reported.
        for minutes in (0, 1, 3, 3, *[0.5] * 40, 60, 3, 600, 3, 2000, 3, 20000, 3):
            self.passes(minutes * MINUTE)
            self.look()
            with self.store.reading() as look:
                if not look.has_open_jobs():
                    break
        self.note_admitted()
