"""The faults that somebody else causes: processes killed and stopped, the store restarted, machines taken back."""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil

from broker.agent.clock import to_text
from broker.core.errors import BrokerError
from broker.engines.detached import Slot
from broker.store import Store
from tests.chaos.schedule import Strike
from tests.chaos.stage import ChaosStage
from tests.unreadable import DAMAGES, damage_view

JUMPS = {"clock_forward": 1800.0, "clock_backward": -600.0}
ASKED_OF_PROCESSES = (
    "object_store_errors",
    "object_store_delays",
    "engine_says_running",
    "engine_loses_handles",
    "engine_repeats_itself",
    "slurm_errors",
    "slurm_nonsense",
)
LATE = timedelta(seconds=0.5)
_WATCHING = {"guard.py", "broker.engines.sandbox.machine", "broker.engines.gang"}


class Striking:
    """Does what the schedule says. A strike without a victim waits for one."""

    def __init__(self, stage: ChaosStage, store: Store) -> None:
        self._stage, self._store = stage, store
        self._later: list[threading.Thread] = []
        self._waiting: dict[str, Strike] = {}

    def __call__(self, strike: Strike) -> None:
        stage, kind = self._stage, strike.kind
        if kind in ASKED_OF_PROCESSES:
            stage.control.begin(kind, strike.lasts)
        elif kind in JUMPS:
            stage.control.begin(kind, strike.lasts, by=JUMPS[kind] * (0.2 + 0.8 * strike.draw))
        elif kind == "clock_over_midnight":
            stage.control.begin(kind, strike.lasts, by=_to_midnight() - 6 * strike.draw)
        elif kind == "store_restarted":
            self._restart_store(strike)
        elif getattr(self, f"_{kind}")(strike):
            stage.control.struck(kind)
        else:
            self._waiting[kind] = strike

    def again(self) -> None:
        """Those that found no victim so far."""
        waiting, self._waiting = self._waiting, {}
        for strike in waiting.values():
            self(strike)

    def finish(self) -> None:
        """Wait for what was to end later."""
        for thread in self._later:
            thread.join()

    def _after(self, seconds: float, call: Callable[[], object]) -> None:
        def run() -> None:
            time.sleep(seconds)  # faults last in real time
            call()

        self._later.append(threading.Thread(target=run))
        self._later[-1].start()

    def _broker_killed(self, strike: Strike) -> bool:
        services = [service for service in self._stage.services if service.poll() is None]
        if not services:
            return False
        victim = services[int(strike.draw * len(services))]
        victim.kill()
        victim.wait()
        return True

    def _broker_frozen(self, strike: Strike) -> bool:
        """Suspended, as a laptop is, with its locks and connections; it wakes up with what it knew."""
        services = [service for service in self._stage.services if service.poll() is None]
        if not services:
            return False
        victim = services[int(strike.draw * len(services))]
        victim.send_signal(signal.SIGSTOP)
        self._after(strike.lasts, lambda: victim.send_signal(signal.SIGCONT))
        return True

    def _row_unreadable(self, strike: Strike) -> bool:
        """What the store has of a job makes no sense for a while."""
        try:
            with self._store.reading() as look:
                open_ones = [view.id for view in look.unclosed()]
            if not open_ones:
                return False
            victim = open_ones[int(strike.draw * len(open_ones))]
            kinds = list(DAMAGES.values())
            before = damage_view(self._store, victim, kinds[int(strike.draw * 1000) % len(kinds)])
        except BrokerError:
            return False
        self._after(strike.lasts, lambda: self._mend(victim, before))
        return True

    def _mend(self, job_id: str, view: str) -> None:
        """As soon as the store is there. Nobody can have changed meanwhile what nobody can read."""
        while True:
            with suppress(BrokerError):
                damage_view(self._store, job_id, lambda _: view)
                return
            time.sleep(0.2)  # until the store is back

    def _restart_store(self, strike: Strike) -> None:
        self._stage.stop_store(rudely=strike.draw < 0.5)
        time.sleep(strike.lasts)  # so long it is away
        self._stage.start_store()
        self._stage.control.struck(strike.kind)

    def _machine_killed(self, strike: Strike) -> bool:
        """Machine, agent and job, at once and without a word; on Slurm the job is cancelled by a stranger."""
        agents = sorted(self._processes("broker.agent"), key=lambda one: one.pid)
        if not agents:
            return False
        with suppress(psutil.Error):
            agents[int(strike.draw * len(agents))].kill()
            return True
        return False

    def _guard_killed(self, strike: Strike) -> bool:
        """An agent, the guard of its command, and what watches the agent, at once, as `pkill -9 python` does. The
        command goes on, as it has a session of its own: nothing but the broker can end it."""
        for agent in sorted(self._processes("broker.agent"), key=lambda one: (one.pid * strike.draw) % 1):
            with suppress(psutil.Error):
                if any(one.name() == "setsid" for one in agent.children(recursive=True)):
                    watching = [one for one in agent.parents() if _WATCHING & set(map(_last_part, one.cmdline()))]
                    victims = [*watching, agent, *agent.children()]
                    for act in (psutil.Process.suspend, psutil.Process.kill):  # so that none can act on another's end
                        for process in victims:
                            act(process)
                    return True
        return False

    def _agent_frozen(self, strike: Strike) -> bool:
        """An agent stands still for a while, and its command goes on."""
        agents = sorted(self._processes("broker.agent"), key=lambda one: one.pid)
        if not agents:
            return False
        victim = agents[int(strike.draw * len(agents))]

        def wake() -> None:
            with suppress(psutil.Error):
                victim.resume()

        with suppress(psutil.Error):
            victim.suspend()
            self._after(strike.lasts, wake)
            return True
        return False

    def _disk_filled(self, strike: Strike) -> bool:
        """No byte is left on the disk of the broker, its run folders and the agents of this machine."""
        if not self._processes("broker.agent"):
            return False
        ballast = self._stage.home / f"ballast-{strike.at:.0f}-{strike.draw}"
        with ballast.open("wb") as file:
            for _ in range(3):  # others write, and delete, meanwhile
                free = os.statvfs(ballast)
                with suppress(OSError):
                    os.posix_fallocate(file.fileno(), file.tell(), free.f_bavail * free.f_frsize)
                file.seek(0, os.SEEK_END)
        self._after(strike.lasts, ballast.unlink)
        return True

    def _notice_never(self, strike: Strike) -> bool:
        """The provider takes a machine back and says nothing."""
        return self._take_back(strike, lambda slot: None, 0.0)

    def _notice_late(self, strike: Strike) -> bool:
        """Half a second is all there is."""

        def tell(slot: Path) -> None:
            at = datetime.now(UTC) + LATE
            Slot(slot).write("notice.json", {"source": "sandbox", "terminates_at": to_text(at)})

        return self._take_back(strike, tell, LATE.total_seconds())

    def _take_back(self, strike: Strike, tell: Callable[[Path], None], wait: float) -> bool:
        machines = sorted(self._processes("broker.engines.sandbox.machine"), key=lambda one: one.pid)
        first = int(strike.draw * len(machines))
        for victim in machines[first:] + machines[:first]:
            with suppress(psutil.Error, IndexError, OSError):
                slot = Path(victim.cmdline()[-2])
                state = Slot(slot).read("state.json")
                if state is not None and state["booted"] and not state["gone_at"]:
                    tell(slot)
                    time.sleep(wait)  # the notice it gets
                    victim.kill()  # and with it all that runs on it
                    return True
        return False

    def _processes(self, module: str) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                words = process.cmdline()
                if module in words and any(word.find(str(self._stage.folder)) >= 0 for word in words):
                    found.append(process)
        return found


def _last_part(word: str) -> str:
    return word.rpartition("/")[2]


def _to_midnight() -> float:
    """Seconds until the day ends (UTC)."""
    now = datetime.now(UTC)
    tomorrow = datetime(now.year, now.month, now.day, tzinfo=UTC) + timedelta(days=1)
    return (tomorrow - now).total_seconds()
