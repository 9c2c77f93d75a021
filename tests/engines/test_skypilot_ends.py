"""Clusters that were gone while nobody looked: SkyPilot's server says since when. On the stand-in of the SDK."""

import contextlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.core.ports import EngineState
from broker.core.values.clock import ManualClock, SystemClock
from broker.engines.skypilot.engine import SkypilotSettings
from tests.contracts.engine_bench import Bench, eventually
from tests.engines.skypilot_bench import made, offer, placed
from tests.fakes import skypilot as fake

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


class ServerTemporarilyUnavailableError(RuntimeError):
    pass


class APINotSupportedError(RuntimeError):
    pass


class CountedSky(fake.Sky):
    """Counts its reports; ``trouble`` is raised instead of one."""

    reports = 0
    trouble: Exception | None = None

    def cost_report(self, days: int | None = None) -> str:
        self.reports += 1
        if self.trouble is not None:
            raise self.trouble
        return super().cost_report(days)


@pytest.fixture
def sky(tmp_path: Path) -> Iterator[CountedSky]:
    (tmp_path / "sky").mkdir(mode=0o700)
    with contextlib.closing(CountedSky(tmp_path / "sky" / "nodes")) as running:
        yield running


class Later:
    """Some jobs ended and took their machines down; the broker is back hours later, by its clock."""

    def __init__(self, folder: Path, sky: CountedSky, jobs: int) -> None:
        self.sky, settings = sky, SkypilotSettings(shared_disk=True, look=0.0)
        bench = Bench(
            make=lambda: made(folder / "home", sky, settings),
            placement=placed(offer()), clock=SystemClock(), folder=folder, doomed=placed(offer()),
            take_away=sky.take_away,
        )  # fmt: skip
        self.handles = [bench.engine.submit(bench.launch("true")) for _ in range(jobs)]
        names = {handle.rpartition(":")[2] for handle in self.handles}

        def ended() -> bool:
            rows = fake.Sky.get(sky, fake.Sky.cost_report(sky, 30))
            return names <= {row["name"] for row in rows if row["usage_intervals"][-1][1]}

        eventually(ended, "their machines are gone")
        self.back = datetime.now(UTC) + 8 * HOUR
        self.clock = ManualClock(self.back)
        self.engine = made(folder / "home", sky, settings, self.clock)

    def look(self) -> Sequence[tuple[EngineState, datetime | None]]:
        found = self.engine.observe(self.handles)
        return [(found[handle].state, found[handle].gone_at) for handle in self.handles]


@pytest.mark.system
def test_machines_that_were_gone_while_nobody_looked_are_billed_until_the_server_noticed(
    tmp_path: Path, sky: CountedSky
) -> None:
    """Not until the broker is back; and a report is a round trip, so it is one for all of them."""
    later = Later(tmp_path, sky, jobs=3)
    for state, gone_at in later.look():
        assert state is EngineState.GONE
        assert gone_at is not None
        assert gone_at < later.back - 7 * HOUR
    assert sky.reports == 1
    later.look()
    assert sky.reports == 1


@pytest.mark.system
def test_a_server_that_is_away_is_asked_again_before_the_longer_bill_is_made(tmp_path: Path, sky: CountedSky) -> None:
    later = Later(tmp_path, sky, jobs=2)
    sky.trouble = ServerTemporarilyUnavailableError("starting")
    assert later.look() == [(EngineState.UP, None)] * 2
    assert sky.reports == 1, "one question a look, whatever comes of it"
    sky.trouble = None
    later.clock.advance(MINUTE)
    gone = later.look()
    assert [state for state, _ in gone] == [EngineState.GONE] * 2
    assert all(gone_at is not None and gone_at < later.back - 7 * HOUR for _, gone_at in gone)
    assert sky.reports == 2


@pytest.mark.system
def test_a_server_that_stays_away_is_not_waited_for(tmp_path: Path, sky: CountedSky) -> None:
    """Billed until it was missed, which is when the first look found it gone."""
    later = Later(tmp_path, sky, jobs=1)
    sky.trouble = ServerTemporarilyUnavailableError("starting")
    later.look()
    later.clock.advance(4 * MINUTE)
    assert later.look() == [(EngineState.UP, None)]
    later.clock.advance(MINUTE)
    assert later.look() == [(EngineState.GONE, later.back)]


@pytest.mark.system
def test_where_no_server_keeps_records_it_is_billed_until_it_was_missed(tmp_path: Path, sky: CountedSky) -> None:
    later = Later(tmp_path, sky, jobs=1)
    sky.trouble = APINotSupportedError("no /cost_report")
    assert later.look() == [(EngineState.GONE, later.back)]
