"""Jobs that Slurm has forgotten: what their agents wrote says when the nodes were given back. No cluster is asked."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.agent.claims import Claim
from broker.agent.formats import Exit, rank_document
from broker.core.events.outcomes import Cause
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.ports import EngineState, Launch, Observation
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.engines.slurm import SlurmEngine

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Forgotten:
    """A job that was submitted, ran, and is out of Slurm's memory."""

    def __init__(self, folder: Path, nodes: int) -> None:
        offer = Offer(
            "slurm", "loop", "loop:gpu", "cpu", None, 0, CapacityType.OWNED, Money.ZERO, START, "slurm",
            availability=Availability.AVAILABLE, engine="slurm", money=MoneyKind.AMORTISED,
        )  # fmt: skip
        placement = Placement(offer, nodes, Money.ZERO, Money.ZERO, (), None, None, 1.0, 1.0, 0.0)
        self._attempt = folder / "runs" / "j" / "attempts" / "1"
        self._attempt.mkdir(parents=True)
        job = Job(name="j", run="x", num_nodes=nodes)
        self._engine = SlurmEngine(folder / "home", ManualClock(START + 60 * MINUTE))
        self._handle = self._engine.submit(Launch("j-1", job, placement, self._attempt.as_uri()))

    def claims(self, rank: int) -> None:
        claim = Claim(rank, "node", "10.0.0.1", 1, "1", "nonce", "g", START)
        (self._attempt / rank_document("claim.json", rank)).write_text(json.dumps(claim.to_json()))

    def exits(self, rank: int, minutes: float, cause: Cause = Cause.COMPLETED) -> None:
        ending = Exit(cause.value, START + minutes * MINUTE)
        (self._attempt / rank_document("exit.json", rank)).write_text(json.dumps(ending.to_json()))

    def look(self) -> Observation:
        return self._engine.observe([self._handle])[self._handle]


@pytest.fixture(autouse=True)
def slurm_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.engines.slurm.run", lambda arguments, environment=None: "17")
    monkeypatch.setattr("broker.engines.slurm.own_jobs", lambda key=None: [])
    monkeypatch.setattr("broker.engines.slurm.accounting_record", lambda number: None)
    monkeypatch.setattr("broker.engines.slurm.cluster_name", lambda: "loop")


def test_a_gang_ended_when_the_last_of_its_ranks_did(tmp_path: Path) -> None:
    """The batch job waits for all of them, and holds all nodes till then."""
    gang = Forgotten(tmp_path, 3)
    for rank, minutes in enumerate((5, 40, 20)):
        gang.claims(rank)
        gang.exits(rank, minutes)
    gone = gang.look()
    assert (gone.state, gone.since, gone.gone_at) == (EngineState.GONE, START, START + 40 * MINUTE)
    assert (gone.interrupted, gone.evidence) == (False, "Slurm has forgotten it; the agent ended: completed")


def test_a_gang_of_which_one_rank_said_nothing_may_have_held_its_nodes_for_longer(tmp_path: Path) -> None:
    gang = Forgotten(tmp_path, 2)
    for rank in (0, 1):
        gang.claims(rank)
    gang.exits(0, 5, Cause.PREEMPTED)
    assert gang.look().state is EngineState.LOST
    gang.exits(1, 6)
    gone = gang.look()
    assert (gone.gone_at, gone.interrupted) == (START + 6 * MINUTE, True)


def test_a_single_node_ended_when_its_agent_did_and_needs_to_have_begun(tmp_path: Path) -> None:
    alone = Forgotten(tmp_path, 1)
    alone.exits(0, 5)
    assert alone.look().state is EngineState.LOST
    alone.claims(0)
    assert alone.look().gone_at == START + 5 * MINUTE
