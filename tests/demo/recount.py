"""The demo's figures worked out anew, by code of its own, from nothing but the rows of its store.

Reads the database with Python's own driver and computes in fractions, so that no line of the product vouches for
itself: events give attempts, steps and machine times; observed prices give the bill; ledger entries give the money.
"""

import sqlite3
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.program import body_of

HOUR = 3_600_000_000  # in microseconds, as the store counts
TAKEN_AWAY = {"preempted", "machine_lost", "agent_died", "fenced"}
FAILED = {"exit_status", "killed_by_signal"}


@dataclass
class Try:
    """One attempt. Times in microseconds since 1970."""

    offer: dict[str, Any]
    nodes: int
    throughput: Fraction
    up: int | None = None
    running: int | None = None
    ended: int | None = None
    gone: int | None = None
    cause: str = ""
    last_step: int | None = None
    resumed_from: str | None = None
    resumed_step: int | None = None
    saved: list[tuple[str, int]] = field(default_factory=list)


def micros(text: str) -> int:
    """An ISO time as the store counts."""
    at = datetime.fromisoformat(text)
    return round(Fraction(at.timestamp()) * 1_000_000)


def known(moment: int | None) -> int:
    """A time that the store has to have of a machine that ran."""
    assert moment is not None, "the store lacks a time"
    return moment


class Recount:
    """Everything the store of a demo says, and what follows from it."""

    def __init__(self, store: Path) -> None:
        connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
        connection.row_factory = sqlite3.Row
        self.events = connection.execute("SELECT * FROM attempt_event ORDER BY job_id, seq").fetchall()
        self.entries = connection.execute("SELECT * FROM ledger_entry ORDER BY id").fetchall()
        self._prices = self._series(connection)
        connection.close()
        self.tries: list[Try] = []
        self.baseline: tuple[Fraction, Fraction] | None = None
        self.state, self.began, self.finished = "", 0, 0
        for row in self.events:
            self._tell(row["kind"], row["attempt"], row["at"], body_of(row["body"]))

    @staticmethod
    def _series(connection: sqlite3.Connection) -> dict[tuple[str, str, str, str], list[tuple[int, int]]]:
        """What each spot and on-demand machine cost when: (zone, instance type, capacity type, source)."""
        found: dict[tuple[str, str, str, str], list[tuple[int, int]]] = defaultdict(list)
        query = (
            "SELECT pool.zone, instance_type, capacity_type, source, at, price_change.micros FROM price_change "
            "JOIN offer ON offer.id = price_change.series JOIN pool ON pool.id = offer.pool_id "
            "WHERE pool.provider = 'sandbox' AND price_change.micros IS NOT NULL AND term_months IS NULL ORDER BY at"
        )
        for zone, machine, capacity, source, at, price in connection.execute(query):
            found[zone, machine, capacity, source].append((at, price))
        return found

    def _tell(self, kind: str, number: int | None, at: int, body: dict[str, Any]) -> None:
        if kind == "submitted":
            self.began = at
            if body["on_demand"]:
                self.baseline = Fraction(body["on_demand"]["rate"]), Fraction(body["on_demand"]["throughput"])
        elif kind == "job_ended":
            self.state, self.finished = body["state"], at
        elif kind == "launch_requested":
            placement = body["placement"]
            self.tries.append(Try(placement["offer"], placement["nodes"], Fraction(placement["throughput"])))
        if number is None:
            return
        one = self.tries[number - 1]
        match kind:
            case "machine_up":
                one.up = micros(body["since"])
            case "command_started":
                one.running = at
            case "restored":
                one.resumed_from, one.resumed_step = body["checkpoint"], body["step"]
            case "checkpoint_saved":
                one.saved.append((body["checkpoint"], at))
            case "attempt_ended":
                one.ended, one.cause, one.last_step = at, body["cause"], body["step"]
            case "machine_gone" if body["gone_at"] is not None:
                one.gone = max(micros(body["gone_at"]), one.up or 0)

    # --- figures ----------------------------------------------------------------------------------------------------

    def ran(self) -> list[Try]:
        return [one for one in self.tries if one.running is not None]

    def steps_redone(self) -> int:
        return sum(
            max(before.last_step - (after.resumed_step or 0), 0)
            for before, after in pairwise(self.ran())
            if before.last_step is not None
        )

    def work_done(self) -> Fraction:
        """Useful microseconds of the reference machine."""
        behind: dict[str | None, Fraction] = {None: Fraction(0)}
        for one in self.ran():
            for checkpoint, at in one.saved:
                behind[checkpoint] = behind[one.resumed_from] + max(at - known(one.running), 0) * one.throughput
        last = self.tries[-1]
        assert last.cause == "completed"
        return behind[last.resumed_from] + (known(last.ended) - known(last.running)) * last.throughput

    def on_demand_cost(self) -> int:
        """Micro-dollars: the same work, one start and one removal, on the cheapest on-demand machine."""
        assert self.baseline is not None, "the job was submitted without an on-demand price to compare with"
        rate, throughput = self.baseline
        first, last = self.ran()[0], self.ran()[-1]
        start = max(known(first.running) - known(first.up), 0)
        removal = max(known(last.gone) - known(last.ended), 0)
        return round(rate * 1_000_000 * (self.work_done() / throughput + start + removal) / HOUR)

    def machine_cost(self, one: Try) -> int:
        """Micro-dollars of one attempt: each second at the price that was in force, in whole billing steps."""
        if one.up is None:
            return 0
        offer, gone = one.offer, known(one.gone)
        step, least = (round(offer["billing"][name] * 1_000_000) for name in ("granularity", "minimum"))
        billed_to = one.up + -(-max(gone - one.up, least) // step) * step
        if offer["capacity_type"] != "spot":
            series = [(0, round(Fraction(offer["price"]) * 1_000_000))]
        else:
            series = self._prices[offer["zone"], offer["instance_type"], "spot", offer["source"]]
        times = [at for at, _ in series]
        edges = [one.up, *(at for at in times if one.up < at < gone), billed_to]
        total = Fraction(0)
        for since, until in pairwise(edges):
            price = series[max(bisect_right(times, since) - 1, 0)][1]
            total += Fraction(price * (until - since), HOUR)
        return round(total * one.nodes)

    def account(self, name: str) -> int:
        return sum(entry["micros"] for entry in self.entries if entry["account"] == name)

    def balanced(self) -> bool:
        """Every movement is two entries that sum to nothing, and no job ever holds less than nothing."""
        pairs: dict[str, list[int]] = defaultdict(list)
        held = 0
        for entry in self.entries:
            pairs[entry["movement_id"]].append(entry["micros"])
            held += entry["micros"] if entry["account"] == "held" else 0
            if held < 0:
                return False
        return all(len(pair) == 2 and sum(pair) == 0 for pair in pairs.values())

    def interruptions(self) -> list[tuple[str, int]]:
        """Where and when (microseconds after submission) capacity was taken away."""
        return [(one.offer["zone"], known(one.ended) - self.began) for one in self.tries if one.cause in TAKEN_AWAY]

    def figures(self) -> dict[str, Any]:
        """As `gpubroker demo --json` gives them."""
        cost, elsewhere = self.account("spent"), self.on_demand_cost()
        resumed = [one.resumed_step for one in self.tries if one.resumed_step is not None]
        return {
            "job_state": self.state,
            "attempts": len(self.tries),
            "interruptions": len(self.interruptions()),
            "failures": sum(one.cause in FAILED for one in self.tries),
            "resumed_from_step": resumed[-1] if resumed else 0,
            "steps": max(one.last_step or 0 for one in self.tries),
            "steps_redone": self.steps_redone(),
            "cost": dollars(cost),
            "on_demand_cost": dollars(elsewhere),
            "savings": dollars(elsewhere - cost),
            "savings_percent": round(100 * (elsewhere - cost) / elsewhere, 1),
            "held": dollars(self.account("held")),
            "ledger_balanced": self.balanced(),
            "simulated_seconds": (self.finished - self.began) / 1e6,
        }


def dollars(amount: int) -> str:
    """A plain decimal string in USD with at least two decimals."""
    whole, rest = divmod(abs(amount), 1_000_000)
    digits = f"{rest:06d}".rstrip("0").ljust(2, "0")
    return f"{'-' if amount < 0 else ''}{whole}.{digits}"
