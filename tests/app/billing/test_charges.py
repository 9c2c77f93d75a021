"""Charges from a provider and from files: read, kept, acted on once, and told where they are far off."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from broker.app.billing.charges import apply_charges, billed_attempts, fetch, import_file
from broker.app.billing.report import ledger_faults, spend
from broker.app.service.duties import ChargesDuty
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, NoLogin, UnknownName, Unreachable
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.capacity import Charge
from broker.core.market.offers import Billing, CapacityType, MoneyKind, Offer
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags, move
from broker.ledger.journal import PaidAttempt
from broker.reconciler.settlement.batch import post_due
from broker.reconciler.settlement.charges import ChargeIndex, Comparison, ComparisonState, compare_from_sums
from broker.reconciler.settlement.settlement import release
from tests.actors import EVERYBODYS, with_clock

DAY = timedelta(days=1)
MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - 9 * DAY
UP, GONE = MIDNIGHT + timedelta(hours=8), MIDNIGHT + timedelta(hours=18)


@dataclass
class ChargingCloud:
    """A provider that charges what a test says."""

    name: str = "acme"
    bill: list[Charge] = field(default_factory=list)
    asked: list[datetime] = field(default_factory=list)
    trouble: Exception | None = None

    def offers(self, query: object) -> Iterator[Offer]:
        return iter(())

    def charges(self, since: datetime) -> Iterator[Charge]:
        self.asked.append(since)
        if self.trouble is not None:
            raise self.trouble
        yield from (one for one in self.bill if one.starts >= since)


@pytest.fixture
def cloud() -> ChargingCloud:
    return ChargingCloud()


@pytest.fixture
def broker(new_broker: Callable[[], Broker], cloud: ChargingCloud) -> Broker:
    made = new_broker()
    made.settings.notify["desk"] = SecretStr("json://127.0.0.1:9/")
    plugged = {"providers": {"acme": "", "mute": ""}, "build_provider": lambda name, **_: _built(name, cloud)}
    return Broker(made.settings, replace(made.registries, **plugged), EVERYBODYS)  # type: ignore[arg-type]  # parts by name


def _built(name: str, cloud: ChargingCloud) -> object:
    return cloud if name == "acme" else object()


def ran(
    broker: Broker,
    job_id: str,
    provider: str = "acme",
    *,
    billing: Billing = Billing(),  # noqa: B008 - a frozen value
    cause: Cause = Cause.COMPLETED,
    until: datetime = GONE,
) -> str:
    """A closed job whose machine ran ten hours at five dollars, as the ledger has it; its attempt's key."""
    offer = Offer(
        provider, "r", None, "m", "H100", 8, CapacityType.ON_DEMAND, Money.usd(5), UP, "api", engine="x",
        money=MoneyKind.CASH, billing=billing,
    )  # fmt: skip
    placement = Placement(offer, 1, Money.usd(5), Money.usd(5), (), None, None, 0.9, 1.0, 0.1)
    with broker.store.writing() as tx:
        submitted = ev.Submitted(job=Job(name=job_id, run="x"), user="ann", max_duration_seconds=86400)
        tx.append(job_id, [(None, submitted)], UP)
        tx.post(
            move(
                Movement.HOLD, Money.usd(60), movement_id=f"{job_id}/hold/1/cash", money=MoneyKind.CASH, at=UP,
                covers=(UP, GONE), tags=Tags(job_id, "ann"),
            )
        )  # fmt: skip
        view = tx.append(
            job_id,
            [
                (1, ev.LaunchRequested(key=f"{job_id}-1", engine="x", placement=placement)),
                (1, ev.Launched(handle="h")),
                (1, ev.MachineUp(since=UP)),
                (1, ev.AttemptEnded(cause=cause)),
                (1, ev.MachineGone(gone_at=until)),
                (None, ev.JobEnded(state=JobState.SUCCEEDED)),
                (None, ev.JobClosed()),
            ],
            GONE,
        )
        post_due(tx, [view], GONE)
        tx.post(release(view, tx.sums([job_id])[job_id], GONE))
    return f"{job_id}-1"


def charge(key: str, amount: str, day: int = 0, *, estimated: bool = False, provider: str = "acme") -> Charge:
    return Charge(provider, MIDNIGHT + day * DAY, MIDNIGHT + (day + 1) * DAY, Money.usd(amount), key, estimated)


def spent(broker: Broker, job_id: str) -> Money:
    with broker.store.reading() as look:
        return look.balance(job_id)[MoneyKind.CASH].spent


def told(broker: Broker) -> list[str]:
    return sorted(one.notice.title for one in broker.store.outbox.under("charges/"))


def test_what_was_charged_is_in_the_ledger_once_however_often_it_is_asked(broker: Broker, cloud: ChargingCloud) -> None:
    key = ran(broker, "train")
    cloud.bill = [charge(key, "53.25"), charge("", "4")]
    done = fetch(broker)
    assert done.changed == {"acme": 2}
    assert [(one.key, one.difference) for one in done.adjusted] == [(key, Money.usd("3.25"))]
    for _ in range(3):
        again = fetch(broker, "acme")
        assert again.adjusted == []
    assert spent(broker, "train") == Money.usd("53.25")
    (row,) = spend(broker, "provider")
    assert row.cash == Money.usd("53.25")
    assert ledger_faults(broker) == []
    found = billed_attempts(broker)
    assert [(one.quoted, one.metered, one.billed) for one in found.rows] == [
        (Money.usd(50), Money.usd(50), Money.usd("53.25"))
    ]
    assert found.for_others == {"acme": Money.usd(4)}


def test_charges_that_change_are_followed_and_those_that_vanish_are_gone(broker: Broker, cloud: ChargingCloud) -> None:
    key = ran(broker, "train")
    for amounts in (["30", "30"], ["30", "12.5"], ["70"], ["50"]):
        cloud.bill = [charge(key, amount, estimated=True) for amount in amounts]
        fetch(broker)
        assert spent(broker, "train") == Money.usd(sum(map(float, amounts)).__str__())
        assert ledger_faults(broker) == []


def test_a_provider_in_trouble_or_without_a_login_is_said(broker: Broker, cloud: ChargingCloud) -> None:
    ran(broker, "train")
    cloud.trouble = Unreachable("no answer", where="acme")
    assert fetch(broker).trouble == {"acme": "acme: no answer"}
    cloud.trouble = NoLogin("none", where="acme")
    assert fetch(broker).without_login == ["acme"]
    assert spent(broker, "train") == Money.usd(50)
    with pytest.raises(UnknownName):
        fetch(broker, "acne")


def test_bad_settings_of_one_provider_keep_no_other_from_being_asked(broker: Broker, cloud: ChargingCloud) -> None:
    def built(name: str, **_: object) -> object:
        if name == "mute":
            raise InvalidInput("no such region", where="[providers.mute]")
        return cloud

    broker = Broker(broker.settings, replace(broker.registries, build_provider=built), EVERYBODYS)  # type: ignore[arg-type]  # a part
    ran(broker, "first", "mute")
    cloud.bill = [charge(ran(broker, "train"), "53.25")]
    done = fetch(broker)
    assert done.trouble == {"mute": "[providers.mute]: no such region"}
    assert done.changed == {"acme": 1}
    assert spent(broker, "train") == Money.usd("53.25")
    with pytest.raises(InvalidInput, match="no such region"):
        fetch(broker, "mute")


def test_charges_that_change_before_they_are_acted_on_are_taken_as_they_are_then(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process records a newer bill between the look and the posting."""
    key, store = ran(broker, "train"), broker.store
    writing = store.writing
    store.charges.record([charge(key, "53")], source="api", at=GONE)

    def later() -> object:
        store.charges.record([charge(key, "70")], source="api", at=GONE)
        return writing()

    monkeypatch.setattr(store, "writing", later)
    adjusted, _ = apply_charges(broker)
    assert [one.billed for one in adjusted] == [Money.usd(70)]
    assert spent(broker, "train") == Money.usd(70)
    assert ledger_faults(broker) == []


def test_a_provider_that_does_not_tell_is_named_with_the_way_out(broker: Broker) -> None:
    ran(broker, "train", "mute")
    assert fetch(broker).changed == {}
    with pytest.raises(InvalidInput, match="does not report its charges") as refused:
        fetch(broker, "mute")
    assert "report charges FILE" in refused.value.hint


def test_large_differences_are_told_once_and_small_ones_where_they_add_up(broker: Broker, cloud: ChargingCloud) -> None:
    cloud.bill = [charge(ran(broker, "close"), "50.9")]
    assert fetch(broker).alerts == []
    cloud.bill.append(charge(ran(broker, "far"), "80"))
    for _ in range(2):
        fetch(broker)
        broker.store.charges.record([], source="api", at=GONE)
    both = told(broker)
    assert len(both) == 2
    assert "acme charged $80.00 for far-1; metered: $50.00" in both
    assert any(f"in {GONE:%Y-%m}" in title and "$130.9" in title for title in both)


def test_a_service_asks_once_a_day(broker: Broker, cloud: ChargingCloud) -> None:
    cloud.bill = [charge(ran(broker, "train"), "80")]
    said: list[str] = []
    duty = ChargesDuty(broker, say=said.append)
    assert duty.once() is not None
    assert duty.once() is None
    assert len(cloud.asked) == 1
    assert any("charged $80" in line for line in said)


# Files.


def file(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "bill.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_file_is_imported_once_however_often_it_is_read(broker: Broker, tmp_path: Path) -> None:
    key = ran(broker, "train", "mute")
    bill = file(
        tmp_path, "day,Key,amount,note", f"{MIDNIGHT:%Y-%m-%d},{key},40,gpu", f"{MIDNIGHT:%Y-%m-%d},{key},$12.5,disk",
        f"{MIDNIGHT:%Y-%m-%d},,1,other",
    )  # fmt: skip
    done = import_file(broker, bill, "mute")
    assert done.changed == {"mute": 3}
    assert import_file(broker, bill, "mute").changed == {"mute": 0}
    assert spent(broker, "train") == Money.usd("52.5")
    assert [one.standing for one in billed_attempts(broker).rows] == [ComparisonState.COMPARED]
    assert billed_attempts(broker).for_others == {"mute": Money.usd(1)}
    assert ledger_faults(broker) == []


TEN, SIXTEEN = (MIDNIGHT + timedelta(hours=hours) for hours in (10, 16))


@pytest.mark.parametrize(
    ("corrected", "total", "changed", "replaced"),
    [
        (["{key},{up},{ten},gpu,20", "{key},{ten},{gone},gpu,32", ",{ten},{gone},,7"], "53", 2, 2),  # an amount
        (["{key},{up},{gone},gpu,53", ",{ten},{gone},,6"], "54", 3, 2),  # one row for two
        (["{key},{up},{sixteen},gpu,29", "{key},{sixteen},{gone},gpu,21"], "51", 5, 3),  # other times, one row fewer
        ([",{ten},{gone},,6", "{key},{ten},{gone},gpu,30", "{key},{up},{ten},gpu,20"], "51", 0, 0),  # another order
        (["other-1,{up},{gone},gpu,50"], "50", 4, 3),  # the charges are of another attempt; as metered again
    ],
)
def test_a_newer_file_replaces_the_charges_of_the_time_that_it_covers(
    broker: Broker, tmp_path: Path, corrected: list[str], total: str, changed: int, replaced: int
) -> None:
    key = ran(broker, "train", "mute")
    times = {"up": UP, "ten": TEN, "sixteen": SIXTEEN, "gone": GONE}

    def bill(*lines: str) -> Path:
        said = {name: at.isoformat() for name, at in times.items()}
        return file(tmp_path, "key,starts,ends,line,amount", *(line.format(key=key, **said) for line in lines))

    later, month = f"{key},{GONE.isoformat()},{(GONE + DAY).isoformat()},gpu,1", "key,starts,ends,line,amount"
    import_file(broker, file(tmp_path, month, later), "mute")  # outside of that time: stays
    first = ["{key},{up},{ten},gpu,20", "{key},{ten},{gone},gpu,30", ",{ten},{gone},,6"]
    assert import_file(broker, bill(*first), "mute").replaced == {"mute": 0}
    assert spent(broker, "train") == Money.usd(51)
    if replaced:
        with pytest.raises(InvalidInput, match=rf"bill.csv: would replace {replaced} of .* from bill.csv, "):
            import_file(broker, bill(*corrected), "mute")
        assert spent(broker, "train") == Money.usd(51), "another part of the bill is not lost"
    done = import_file(broker, bill(*corrected), "mute", replace=True)
    assert (done.changed, done.replaced) == ({"mute": changed}, {"mute": replaced})
    assert len(broker.store.charges.all()) == len(corrected) + 1
    for _ in range(2):
        again = import_file(broker, bill(*corrected), "mute")
        assert (again.changed, again.replaced, again.adjusted) == ({"mute": 0}, {"mute": 0}, [])
    assert spent(broker, "train") == Money.usd(total)
    assert ledger_faults(broker) == []


def test_thousands_may_be_separated_where_nothing_else_is_meant(broker: Broker, tmp_path: Path) -> None:
    amounts = ("1,234.5", "1,234,567", "12.345", "$-1,234.25")
    for texts, total in ((amounts, "1234579.595"), (("12.345,67", "1.234.567", "2.5"), "1246915.17")):
        lines = (f'a-{at},2026-11-01,"{text}"' for at, text in enumerate(texts))
        import_file(broker, file(tmp_path, "key,day,amount", *lines), "mute", replace=True)
        assert sum((one.amount for one in broker.store.charges.all()), Money.ZERO) == Money.usd(total)


def test_two_parts_of_a_bill_are_both_kept_with_an_account_each(broker: Broker, tmp_path: Path) -> None:
    key, day, header = ran(broker, "train", "mute"), f"{MIDNIGHT:%Y-%m-%d}", "key,day,account,amount"
    for part, amount in (("compute", 40), ("disks", 13)):
        done = import_file(broker, file(tmp_path, header, f"{key},{day},{part},{amount}"), "mute")
        assert done.replaced == {"mute": 0}
    assert spent(broker, "train") == Money.usd(53)


def test_a_charge_dated_long_after_the_machine_is_not_booked_to_its_month(broker: Broker, tmp_path: Path) -> None:
    key, later = ran(broker, "train", "mute"), with_clock(broker, ManualClock(MIDNIGHT + 400 * DAY))
    lines = (f"{MIDNIGHT + days * DAY:%Y-%m-%d},{key},{amount}" for days, amount in ((0, 51), (30, 2), (365, 900)))
    done = import_file(later, file(tmp_path, "day,key,amount", *lines), "mute")
    assert spent(broker, "train") == Money.usd(53), "a disk that stayed for a month is part of its cost"
    assert (done.unknown, billed_attempts(later).for_others) == ([key], {"mute": Money.usd(900)})


def test_a_bill_of_long_ago_is_booked(broker: Broker, tmp_path: Path) -> None:
    key, late = ran(broker, "train", "mute"), with_clock(broker, ManualClock(MIDNIGHT + 200 * DAY))
    import_file(late, file(tmp_path, "day,key,amount", f"{MIDNIGHT:%Y-%m-%d},{key},53"), "mute")
    assert spent(broker, "train") == Money.usd(53)


def test_charges_on_record_are_booked_when_whoever_read_them_died(broker: Broker) -> None:
    later = with_clock(broker, ManualClock(MIDNIGHT + 50 * DAY))
    broker.store.charges.record([charge(ran(broker, "train"), "53.25")], source="api", at=later.clock.now())
    assert [one.difference for one in apply_charges(later)[0]] == [Money.usd("3.25")]


def test_times_and_providers_may_stand_in_columns(broker: Broker, tmp_path: Path) -> None:
    key = ran(broker, "train", "mute")
    line = f"{key},{UP.isoformat()},{GONE.isoformat()},51,mute,gpu,no"
    import_file(broker, file(tmp_path, "key,starts,ends,amount,provider,line,estimated", line))
    assert spent(broker, "train") == Money.usd(51)


def test_columns_may_be_separated_as_spreadsheets_do_it(broker: Broker, tmp_path: Path) -> None:
    key = ran(broker, "train", "mute")
    import_file(broker, file(tmp_path, "key;day;amount;provider", f"{key};{UP:%Y-%m-%d};1.234,50;mute"))
    assert spent(broker, "train") == Money.usd("1234.50")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["key,amount"], "starts and ends"),
        (["day,amount"], "key"),
        (["key,day,amount", "a-1,yesterday,1"], "line 2: day is 'yesterday'"),
        (["key,day,amount", "a-1,2026-11-01,1", "a-1,2026-11-01,much"], "line 3: amount is 'much'"),
        (["key,day,amount", "a-1,2026-11-01,NaN"], "amount is 'NaN'"),
        (["key,day,amount", 'a-1,2026-11-01,"12,34"'], "amount is '12,34'"),  # a decimal comma is no $1,234
        (["key,day,amount", 'a-1,2026-11-01,"1,23,456"'], "amount is '1,23,456'"),
        (["key,day,amount", 'a-1,2026-11-01,"12,345"'], "line 2: amount is '12,345', with a thousands separator or a"),
        (["key,day,amount", 'a-1,2026-11-01,"1.234,5"', "a-1,2026-11-02,12.345"], "line 3: amount is '12.345', with"),
        (["key,starts,ends,amount", "a-1,2026-11-02,2026-11-01,1"], "an end after the start"),
        (["key,day,amount", "a-1,9999-12-31,1"], "line 2: day is '9999-12-31'"),
        (["key,starts,ends,amount", "a-1,0001-01-01T00:00+05:00,2026-11-02,1"], "line 2: starts is '0001-01-01"),
        (["key,day,amount,estimated", "a-1,2026-11-01,1,perhaps"], "expected yes or no"),
        (["key,day,amount,provider", "a-1,2026-11-01,1,acme"], "provider is 'acme'; expected 'mute'"),
        (["key,day,amount"], "the file has no charges"),
    ],
)
def test_a_file_that_is_wrong_says_where_and_nothing_is_kept(
    broker: Broker, tmp_path: Path, lines: list[str], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        import_file(broker, file(tmp_path, *lines), "mute")
    assert broker.store.charges.all() == []


def test_a_file_without_a_provider_or_that_is_none(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="--provider"):
        import_file(broker, file(tmp_path, "key,day,amount", "a-1,2026-11-01,1"))
    with pytest.raises(UnknownName):
        import_file(broker, file(tmp_path, "key,day,amount", "a-1,2026-11-01,1"), "nobody")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="CSV"):
        import_file(broker, tmp_path / "bytes.csv", "mute")
    with pytest.raises(InvalidInput, match="cannot be read"):
        import_file(broker, tmp_path / "nowhere.csv", "mute")


def test_a_bill_that_comes_from_the_api_is_not_imported_as_well(
    broker: Broker, cloud: ChargingCloud, tmp_path: Path
) -> None:
    cloud.bill = [charge(ran(broker, "train"), "50")]
    fetch(broker)
    with pytest.raises(InvalidInput, match="count twice"):
        import_file(broker, file(tmp_path, "key,day,amount", f"train-1,{MIDNIGHT:%Y-%m-%d},50"), "acme")


def test_what_the_stores_sums_suffice_for_is_what_reading_each_job_gives(
    broker: Broker, cloud: ChargingCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Charged the same, charged more and adjusted, not charged; billed by the hour, refunded, with data that was moved;
    refused, and running."""
    keys = {name: ran(broker, name) for name in ("same", "more", "none", "refund", "moved")}
    ran(broker, "hours", billing=Billing(granularity=timedelta(hours=1)), until=GONE + timedelta(minutes=1))
    ran(broker, "refused", cause=Cause.NO_CAPACITY)
    with broker.store.writing() as tx:
        for name, about in (("refund", "refund/0"), ("moved", "egress/input/0")):
            tx.post(
                move(
                    Movement.ADJUST, Money.usd("2.5"), movement_id=f"{name}/1/{about}", money=MoneyKind.CASH, at=GONE,
                    covers=(UP, UP), tags=Tags(name, "ann", attempt=1, provider="acme"),
                )
            )  # fmt: skip
    cloud.bill = [charge(keys["same"], "50"), charge(keys["more"], "53.25"), charge("elses", "7")]
    fetch(broker)
    quick = compare_from_sums
    taken: list[str] = []

    def watched(found: PaidAttempt, key: str, charged: ChargeIndex) -> Comparison | None:
        if (row := quick(found, key, charged)) is not None:
            taken.append(found.job_id)
        return row

    monkeypatch.setattr("broker.app.billing.charges.compare_from_sums", watched)
    summed = billed_attempts(broker)
    assert set(taken) == {"same", "more", "none"}
    monkeypatch.setattr("broker.app.billing.charges.compare_from_sums", lambda *_: None)
    assert summed == billed_attempts(broker)
    assert {row.job for row in summed.rows} == {"same", "more", "none", "refund", "moved", "hours"}
