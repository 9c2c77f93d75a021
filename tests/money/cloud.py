"""The simulated cloud of the money tests: an engine that records which machine existed when, and whose calls can all
fail.

Machines are billed from ``since`` to ``gone_at`` whatever the broker knows. On each machine an agent may run, which
obeys the last lease that it read: it stops at ``paid_until``, at ``ends_at``, on request, or when its lease was not
renewed for ``max_unattended``. So a dead broker costs no more than was granted. An agent that never started, or died,
obeys nothing; the record has the times in which only the broker could have stopped a machine.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from broker.core.errors import AskAPerson, GiveUp, NoCapacity, RetryLater
from broker.core.events.agent_events import Claimed, CommandStarted, Restored
from broker.core.events.outcomes import Cause
from broker.core.ports import EngineState, Launch, Observation
from broker.engines.runfolder.mailbox import Dated, ExitRecord, NodeState
from tests.money.clock import StageClock
from tests.money.folders import Folders
from tests.reconciler.rehearsal import must_be_plain

ENGINE = "stage"
PENDING = EngineState.PENDING
ERRORS: Mapping[str, Callable[[], Exception]] = {
    "retry": lambda: RetryLater("the stage is busy"),
    "sold_out": lambda: NoCapacity("the stage is sold out"),
    "refused": lambda: GiveUp("the stage refuses"),
    "login": lambda: AskAPerson("the stage wants a login"),
    "crash": lambda: RuntimeError("a mistake in the stage's driver"),
}


@dataclass(frozen=True, slots=True)
class MachineFate:
    """What happens to the next machines. Seconds; None: never.

    ``boots``: from the submission until the machine is up, billed from the beginning; ``queued``: it waits in a queue
    during that time instead, and is billed afterwards. ``comes``: the result then: ``up``; ``no_capacity``: no machine,
    and nothing is billed; ``broken``: the machine that started disappears, and was billed. ``claims``: from then until
    the agent starts; ``runs``: how long the command runs; ``fails``: it ends with an error. ``stops``: how long
    stopping takes. ``says``: the cause that the agent records instead of the true one.
    """

    boots: float = 60.0
    queued: bool = False
    comes: str = "up"
    claims: float | None = 5.0
    runs: float | None = None
    fails: bool = False
    stops: float = 20.0
    says: Cause | None = None


@dataclass(slots=True)
class CloudMachine:
    """One machine, or one gang. Times are true times (UTC)."""

    launch: Launch
    fate: MachineFate
    submitted: datetime
    since: datetime
    up_at: datetime
    agent_from: datetime | None
    agent_until: datetime | None = None
    agent_died: datetime | None = None
    gone_at: datetime | None = None
    interrupted: bool = False
    forgotten: bool = False
    lost_at: datetime | None = None

    @property
    def key(self) -> str:
        return self.launch.key

    @property
    def unfounded(self) -> bool:
        """Whether there never was a machine: its provider reported in the end that it had no capacity."""
        return self.fate.comes == "no_capacity" and self.gone_at == self.up_at

    def exists(self, at: datetime) -> bool:
        return self.gone_at is None or at < self.gone_at

    def agent_works(self, at: datetime) -> bool:
        """Whether an agent that obeys its lease runs there at that time."""
        return self.agent_from is not None and self.agent_from <= at and self.agent_until is None


@dataclass
class ScriptedCloud:
    """``folders``: the documents that nodes read and write.

    ``on_submit``: called with each launch that creates a machine.
    """

    clock: StageClock
    folders: Folders
    on_submit: Callable[[Launch], None] = lambda launch: None
    name: str = ENGINE
    honours: frozenset[str] = frozenset({"several_nodes", "secrets", "setup", "image"})
    remote: bool = False
    fate: MachineFate = MachineFate()
    machines: dict[str, CloudMachine] = field(default_factory=dict)
    failing: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    failed: int = 0

    # --- the engine, as the broker sees it --------------------------------------------------------------------------

    def submit(self, launch: Launch) -> str:
        must_be_plain(launch.key)
        if launch.key in self.machines:
            return launch.key
        assert launch.placement.offer.engine == self.name, "not this engine's offer"
        assert not self.folders.never_prepared(launch.key), "no spec and no lease lie in the run folder"
        after = self._fails("submit")
        self.on_submit(launch)
        now, fate = self.clock.true, self.fate
        up_at = now + timedelta(seconds=fate.boots)
        has_agent = fate.claims is not None and fate.comes == "up"
        self.machines[launch.key] = CloudMachine(
            launch,
            fate,
            submitted=now,
            since=up_at if fate.queued else now,
            up_at=up_at,
            agent_from=up_at + timedelta(seconds=fate.claims or 0.0) if has_agent else None,
        )
        if after is not None:
            raise after
        return launch.key

    def find(self, key: str) -> str | None:
        self._fails("find")
        return key if key in self.machines else None

    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        self._fails("observe")
        return {handle: self._look(handle) for handle in handles}

    def cancel(self, handle: str) -> None:
        self._fails("cancel")
        machine = self.machines.get(handle)
        if machine is not None and self._may_end(machine):
            self._end(machine, Cause.CANCELLED_BY_USER, self.clock.true)

    def _look(self, handle: str) -> Observation:
        machine, now = self.machines.get(handle), self.clock.true
        if machine is None or machine.forgotten:
            return Observation(EngineState.LOST)
        if machine.gone_at is not None and machine.gone_at <= now:
            billed = machine.since if machine.since < machine.gone_at else None
            return Observation(
                EngineState.GONE, billed, machine.gone_at, machine.interrupted, "the machine is gone", machine.unfounded
            )
        if now < machine.up_at:
            return Observation(EngineState.QUEUED) if machine.fate.queued else Observation(PENDING, machine.since)
        return Observation(EngineState.UP, machine.since)

    def _fails(self, call: str) -> Exception | None:
        """Raise the exception that the script requests for this call.

        A submission may also fail after its machine was created, by an error of the driver that leaves this unknown;
        that error is returned.
        """
        if not self.failing[call]:
            return None
        kind = self.failing[call].pop(0)
        self.failed += 1
        if kind == "crash_after":
            return RuntimeError("the connection broke after the request was sent")
        raise ERRORS[kind]()

    # --- what happens to machines -----------------------------------------------------------------------------------

    def live(self) -> list[CloudMachine]:
        """The machines that exist now, oldest first."""
        return [machine for machine in self.machines.values() if machine.exists(self.clock.true)]

    def take_back(self, machine: CloudMachine, *, noticed: bool = True) -> None:
        """The provider takes the machine back. ``noticed``: the agent has time to record the cause."""
        now = self.clock.true
        if noticed and machine.agent_works(now):
            self.folders.exits(machine.key, ExitRecord(now, Cause.PREEMPTED))
        machine.agent_until = machine.agent_until or now
        machine.gone_at, machine.interrupted = min(machine.gone_at or now, now), True

    def lose(self, machine: CloudMachine) -> None:
        """The machine disappears without a report, and the engine does not know it any more."""
        now = self.clock.true
        machine.agent_until = machine.agent_until or now
        machine.gone_at = min(machine.gone_at or now, now)
        machine.forgotten, machine.lost_at = True, now

    def kill_agent(self, machine: CloudMachine) -> None:
        """The agent dies; the machine continues and is billed."""
        if machine.agent_works(self.clock.true):
            machine.agent_until = machine.agent_died = self.clock.true

    def _may_end(self, machine: CloudMachine) -> bool:
        return machine.gone_at is None

    def _end(self, machine: CloudMachine, cause: Cause, at: datetime) -> None:
        """Stop the machine: the agent writes its exit record, and the machine ends a little later."""
        works = machine.agent_works(at)
        if works:
            said = machine.fate.says or cause
            status = {Cause.COMPLETED: 0, Cause.EXIT_STATUS: 1}.get(said)
            self.folders.exits(machine.key, ExitRecord(at, said, status))
            machine.agent_until = at
        machine.gone_at = at + timedelta(seconds=machine.fate.stops if works else 1.0)

    def until(self, now: datetime) -> None:
        """Advance machines and agents to that time, without actions of the broker."""
        for machine in self.machines.values():
            if machine.gone_at is not None and machine.agent_until is not None:
                continue
            if machine.fate.comes != "up" and machine.gone_at is None and machine.up_at <= now:
                machine.gone_at = machine.up_at
            began = machine.agent_from
            if began is None or began > now or machine.agent_until is not None:
                continue
            if machine.gone_at is not None and machine.gone_at <= began:
                continue
            stop = self._stops(machine, began)
            if machine.gone_at is None and stop is not None and stop[0] <= now:
                at = max(stop[0], began)
                self._speaks(machine, began, at)
                self._end(machine, stop[1], at)
            else:
                self._speaks(machine, began, now)

    def _stops(self, machine: CloudMachine, began: datetime) -> tuple[datetime, Cause] | None:
        """When the agent stops according to its lease, and why."""
        lease, read_at = self.folders.granted(machine.key)
        ends: list[tuple[datetime, Cause]] = []
        if lease.stop is not None:
            ends.append((max(read_at, began), lease.stop))
        if lease.paid_until is not None:
            ends.append((lease.paid_until, Cause.PAID_UNTIL))
        if lease.ends_at is not None:
            ends.append((lease.ends_at, Cause.MAX_DURATION))
        if lease.max_unattended is not None:
            ends.append((max(read_at, began) + lease.max_unattended, Cause.UNATTENDED))
        if machine.fate.runs is not None:
            cause = Cause.EXIT_STATUS if machine.fate.fails else Cause.COMPLETED
            ends.append((began + timedelta(seconds=machine.fate.runs), cause))
        return min(ends, key=lambda end: end[0], default=None)

    def _speaks(self, machine: CloudMachine, began: datetime, at: datetime) -> None:
        node = self.folders.node(machine.key)
        if not node.journal:
            start = (Claimed(host="node"), Restored(checkpoint=None), CommandStarted())
            node = NodeState(journal=tuple(Dated(began, body) for body in start))
        self.folders.nodes[machine.key] = replace(node, heartbeat_at=at)
