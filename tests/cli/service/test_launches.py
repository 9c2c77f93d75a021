"""Launches that people made elsewhere: listed, and ended where nobody reported their end."""

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import cli
from broker.app.outside.documents import end_overdue_launches
from broker.app.wiring import Broker
from broker.core.market.offers import MoneyKind
from broker.core.values.burns import Burn
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags, faults
from broker.reconciler.admission.records import hold_entries
from broker.settings import Settings
from broker.store import open_store
from tests.actors import EVERYBODYS
from tests.cli.conftest import Gpubroker

LAUNCH = "outside:slurm-4f1c"


def test_an_open_launch_is_listed_and_ended_once(gpubroker: Gpubroker, home: Path) -> None:
    assert "no launch outside gpubroker is open" in gpubroker("launches").out
    assert "hint: see `gpubroker launches`" in gpubroker("launches", "--end", "NONSENSE").err
    began = datetime.now(UTC) - timedelta(hours=2)
    burn = Burn(Money.usd(40), began, began + timedelta(hours=10), Money.usd(4))
    tags = Tags(LAUNCH, "mo", team="nlp", gpus=8, accelerator="H100")
    with closing(open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=SystemClock())) as store:
        with store.writing() as tx:
            tx.post(hold_entries(tags, {}, {MoneyKind.CASH: burn}, Movement.HOLD, 1))
        [listed] = gpubroker("launches", "--json").json["launches"]
        assert (listed["id"], listed["held_usd"], listed["gpus"]) == (LAUNCH, "40.00", 8)
        unknown = gpubroker("launches", "--end", "slurm-4f1d")
        assert (unknown.code, "did you mean 'outside:slurm-4f1c'?" in unknown.err) == (2, True), unknown.err
        assert gpubroker("launches", "--end", LAUNCH, "--ran", "never").code == 2
        longer = gpubroker("launches", "--end", LAUNCH, "--ran", "60h")
        said = " ".join(longer.err.split())
        assert (longer.code, "cannot have run for 2d 12h: it was judged 2h 00m ago" in said) == (2, True), longer.err
        ended = gpubroker("launches", "--end", "slurm-4f1c", "--ran", "90m", "--json")
        assert ended.json == {"id": LAUNCH, "cost_usd": "6.00"}
        assert gpubroker("launches", "--end", LAUNCH).code == 2, "it is not open any more"
        with store.reading() as look:
            money = look.balance(LAUNCH)[MoneyKind.CASH]
            assert (money.held, money.spent, faults(look.entries())) == (Money.ZERO, Money.usd(6), [])


def test_a_stated_time_is_told_and_audited(gpubroker: Gpubroker, home: Path) -> None:
    began = datetime.now(UTC) - timedelta(hours=5)
    burn = Burn(Money.usd(40), began, began + timedelta(hours=10), Money.usd(4))
    with closing(Broker(Settings(home=home), cli.registries(), EVERYBODYS)) as broker:
        with broker.store.writing() as tx:
            tx.post(hold_entries(Tags(LAUNCH, "mo", gpus=8), {}, {MoneyKind.CASH: burn}, Movement.HOLD, 1))
        said = gpubroker("launches", "--end", LAUNCH, "--ran", "1m").out
        assert "$0.07 spent for 1m 00s of the 5h 00m since it was judged" in " ".join(said.split())
        with broker.store.access.reading() as look:
            [record] = [one for _, one in look.audit(limit=9) if one.action == "outside.end"]
        assert "stated to have run 0:01:00 of the 5:00:" in record.after


def test_a_launch_whose_time_is_over_is_listed_until_somebody_has_looked(gpubroker: Gpubroker, home: Path) -> None:
    launch, since = "outside:skypilot-4f1c", datetime.now(UTC) - timedelta(hours=2)
    burn = Burn.evenly(Money.usd(8), (since, since + timedelta(hours=1)))
    tags = Tags(launch, "mo", team="nlp", provider="aws", region="us-east-1", gpus=2, accelerator="H100")
    with closing(Broker(Settings(home=home), cli.registries(), EVERYBODYS)) as broker:
        with broker.store.writing() as tx:
            tx.post(hold_entries(tags, {}, {MoneyKind.CASH: burn}, Movement.HOLD, 1))
        assert [one.id for one in end_overdue_launches(broker)] == [launch]
    listed = gpubroker("launches", "--json").json
    assert ([one["id"] for one in listed["overdue"]], listed["launches"]) == ([launch], [])
    assert f"OVERDUE {launch}: 2 × H100 at aws us-east-1, launched by mo" in gpubroker("launches").out
    assert gpubroker("launches", "--end", launch, "--ran", "3h").code == 2, "it was judged two hours ago"
    assert gpubroker("launches", "--end", launch, "--json").json == {"id": launch, "cost_usd": "0.00"}
    assert "no launch outside gpubroker is open" in gpubroker("launches").out
