"""This machine as owned capacity, with an NVML of our own making."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.job.jobs import MachineRequest
from broker.core.market.offers import CapacityType, Interconnect, MoneyKind, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.placement.pricing.shares import offer_part
from providers.owned import Owned, OwnedSettings
from tests.contracts.provider_contract import NOW, ProviderContract

GIB = 2**30
Told = TypeVar("Told")


class NVMLError(Exception):
    """What the binding raises for everything."""


@dataclass
class Slice:
    """A MIG device."""

    name: str
    uuid: str
    memory: int


def slices(card: str, *profiles: str) -> tuple[Slice, ...]:
    return tuple(
        Slice(f"{card} MIG {profile}", f"MIG-{index}", int(profile[3:-2]) * GIB)
        for index, profile in enumerate(profiles)
    )


@dataclass
class Card:
    name: str | bytes = "NVIDIA H100 80GB HBM3"
    memory: int = 80 * GIB
    nvlink: bool = True
    mig: bool | None = None
    slices: tuple[Slice, ...] = ()


@dataclass
class FakeNvml:
    """The part of the binding that is used. ``broken`` names calls that raise; ``calls`` counts them."""

    cards: list[Card] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    NVMLError = NVMLError

    def _answer(self, call: str, value: Told) -> Told:
        self.calls.append(call)
        if call in self.broken:
            raise NVMLError(f"{call} failed")
        return value

    def nvmlInit(self) -> None:  # the binding's spelling
        self._answer("init", None)

    def nvmlShutdown(self) -> None:
        self._answer("shutdown", None)

    def nvmlDeviceGetCount(self) -> int:
        return self._answer("count", len(self.cards))

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        return self._answer(f"handle {index}", self.cards[index])

    def nvmlDeviceGetMaxMigDeviceCount(self, card: Card) -> int:
        return self._answer("slices", 7)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: Card, index: int) -> Slice:
        if index >= len(card.slices):
            raise NVMLError("Not Found")
        return self._answer("slice", card.slices[index])

    def nvmlDeviceGetUUID(self, part: Slice) -> str:
        return self._answer("uuid", part.uuid)

    def nvmlDeviceGetName(self, card: Card | Slice) -> str | bytes:
        return self._answer("name", card.name)

    def nvmlDeviceGetMemoryInfo(self, card: Card | Slice) -> SimpleNamespace:
        return self._answer("memory", SimpleNamespace(total=card.memory))

    def nvmlDeviceGetMigMode(self, card: Card) -> list[int]:
        if card.mig is None:
            raise NVMLError("Not Supported")
        return self._answer("mig", [int(card.mig), int(card.mig)])

    def nvmlDeviceGetNvLinkState(self, card: Card, link: int) -> int:
        return self._answer("nvlink", int(card.nvlink))


def look(nvml: FakeNvml, **settings: Any) -> tuple[list[Offer], list[SkippedRow]]:
    owned = Owned(clock=ManualClock(NOW), settings=OwnedSettings(**settings), nvml=lambda: nvml)
    rows = list(owned.offers(OfferQuery()))
    return [row for row in rows if isinstance(row, Offer)], [row for row in rows if isinstance(row, SkippedRow)]


class TestOwnedIsAProvider(ProviderContract):
    plugin = "owned"

    @pytest.fixture
    def provider(self, clock: ManualClock) -> Owned:
        cards = [Card(), Card(), Card("NVIDIA L4", 23 * GIB, nvlink=False), Card("Voodoo 2", GIB)]
        return Owned(clock=clock, nvml=lambda: FakeNvml(cards))


class TestOwnedWithoutADriverIsAProvider(ProviderContract):
    plugin = "owned"

    @pytest.fixture
    def provider(self, clock: ManualClock) -> Owned:
        return Owned(clock=clock, nvml=lambda: FakeNvml(broken={"init"}))


def test_gpus_of_one_kind_are_one_offer_and_the_cpus_another() -> None:
    (gpus, cpus), skipped = look(FakeNvml([Card(), Card()]), name="rack-3")
    assert (gpus.accelerator, gpus.count, gpus.interconnect) == ("H100", 2, Interconnect.NVLINK)
    assert (cpus.accelerator, cpus.count, cpus.instance_type) == (None, 0, "rack-3")
    assert (cpus.cpus or 0) >= 1
    assert (cpus.memory_gib or 0) > 0
    assert skipped == []
    for offer in (gpus, cpus):
        assert offer.capacity_type is CapacityType.OWNED
        assert offer.money is MoneyKind.AMORTISED
        assert offer.price == Money.ZERO
        assert (offer.engine, offer.slots, offer.source, offer.as_of) == ("local", 1, "owned", NOW)


def test_the_memory_tells_cards_of_one_name_apart() -> None:
    (small, _), _ = look(FakeNvml([Card("NVIDIA A100-SXM4-40GB", 40 * GIB)]))
    (large, _), _ = look(FakeNvml([Card(b"NVIDIA A100-SXM4-80GB", 80 * GIB)]))
    (silent, _), _ = look(FakeNvml([Card("NVIDIA A100", 80 * GIB)]))
    assert (small.accelerator, large.accelerator, silent.accelerator) == ("A100", "A100-80GB", "A100-80GB")


def test_a_card_alone_has_no_interconnect_and_cards_without_nvlink_have_pcie() -> None:
    (alone, _), _ = look(FakeNvml([Card()]))
    (several, _), _ = look(FakeNvml([Card("NVIDIA L4", 23 * GIB, nvlink=False)] * 2))
    assert alone.interconnect is None
    assert several.interconnect is Interconnect.PCIE


@pytest.mark.parametrize("call", ["init", "count"])
def test_when_nvml_fails_the_cpus_are_offered_and_the_reason_is_told(call: str) -> None:
    offers, skipped = look(FakeNvml([Card()], broken={call}))
    assert [offer.accelerator for offer in offers] == [None]
    assert [row.reason for row in skipped] == ["nvml_unavailable"]
    assert f"{call} failed" in skipped[0].detail


def test_without_the_binding_the_cpus_are_offered_and_the_reason_is_told() -> None:
    def missing() -> Any:
        raise ModuleNotFoundError("No module named 'pynvml'", name="pynvml")

    rows = list(Owned(clock=ManualClock(NOW), nvml=missing).offers(OfferQuery()))
    assert [row.reason for row in rows if isinstance(row, SkippedRow)] == ["nvml_unavailable"]
    assert [row.accelerator for row in rows if isinstance(row, Offer)] == [None]


@pytest.mark.parametrize("call", ["handle 1", "name", "memory"])
def test_a_card_that_cannot_be_read_is_skipped_and_told(call: str) -> None:
    _, skipped = look(FakeNvml([Card(), Card(), Card()], broken={call}))
    assert {row.reason for row in skipped} == {"gpu_unreadable"}


def test_the_cards_beside_a_broken_one_are_still_offered() -> None:
    (gpus, _), skipped = look(FakeNvml([Card(), Card(), Card()], broken={"handle 1"}))
    assert gpus.count == 2
    assert "GPU 1" in skipped[0].detail


H100 = "NVIDIA H100 80GB HBM3"


def test_slices_are_offered_beside_whole_cards_and_what_is_in_none_is_its_owners() -> None:
    cut = Card(mig=True, slices=slices(H100, "1g.10gb", "1g.10gb", "3g.40gb"))
    offers, skipped = look(
        FakeNvml([Card("NVIDIA A100-SXM4-80GB"), Card("NVIDIA A100-SXM4-80GB"), cut]),
        wear_per_hour="2.40",
        amortised_per_hour="4.80",
    )
    assert {one.machine: (str(one.price), str(one.amortised), one.interconnect) for one in offers} == {
        "A100-80GB:2": ("$1.60", "$3.20", Interconnect.NVLINK),
        "H100-1g.10gb:2": ("$0.20", "$0.40", None),
        "H100-3g.40gb:1": ("$0.40", "$0.80", None),
        "cpu": ("$2.40", "$4.80", None),
    }
    assert [(row.reason, row.detail) for row in skipped] == [
        ("stranded_gpu", "1/4 of the memory of GPU 2 (H100) is in no slice: $0.40 an hour, its owner's")
    ]


@given(
    st.lists(
        st.lists(st.sampled_from(["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb"]), max_size=7), min_size=1, max_size=4
    ),
    st.integers(0, 10**7),
)
def test_the_slices_of_any_mix_and_what_is_stranded_cost_what_their_cards_do(mix: list[list[str]], micros: int) -> None:
    cards = []
    for profiles in mix:
        while sum(int(profile[3:-2]) for profile in profiles) > 80:
            profiles.pop()
        cards.append(Card(mig=True, slices=slices(H100, *profiles)))
    offers, skipped = look(FakeNvml(cards), wear_per_hour=str(Money(micros).dollars))
    parts = [one for one in offers if one.accelerator]
    jobs = [
        offer_part(one, MachineRequest(accelerator=one.accelerator, count=1), unknown_disk=None).price or Money.ZERO
        for one in parts
        for _ in range(one.count)
    ]
    stranded = [Money.usd(row.detail.rpartition("$")[2].split()[0]) for row in skipped if row.reason == "stranded_gpu"]
    cut = [card for card in cards if card.slices]
    if not cut:
        assert not jobs
        return
    rest = Money(micros // len(cut)) * len(cut) - sum((*jobs, *stranded), Money.ZERO)
    assert Money.ZERO <= rest < Money(max(len(jobs), 1)), "of cards that are cut without a rest, what is truncated"
    assert rest == Money.ZERO or len(stranded) < len(cut)


def test_unknown_and_uncut_cards_are_told_and_not_offered() -> None:
    odd = Card(mig=True, slices=slices("Voodoo 2", "1g.10gb"))
    offers, skipped = look(FakeNvml([Card("Voodoo 2", GIB), Card(mig=True), Card(mig=False), odd]))
    assert [offer.machine for offer in offers] == ["H100:1", "cpu"]
    assert [row.reason for row in skipped] == ["unknown_accelerator", "gpu_in_mig_mode", "unknown_accelerator"]
    assert "Voodoo 2" in skipped[0].detail


@pytest.mark.parametrize("broken", [set(), {"count"}, {"handle 0"}])
def test_nvml_is_let_go_of_whatever_happens(broken: set[str]) -> None:
    nvml = FakeNvml([Card()], broken=broken)
    look(nvml)
    assert nvml.calls[-1] == "shutdown"


def test_a_shutdown_that_fails_costs_nothing() -> None:
    (gpus, _), skipped = look(FakeNvml([Card()], broken={"shutdown"}))
    assert gpus.count == 1
    assert skipped == []


def test_power_and_wear_make_the_price() -> None:
    # 6.5 kW × 0.16 $/kWh × 1.4 = 1.456 $/h, and 0.25 $/h of wear
    (gpus, _), _ = look(
        FakeNvml([Card()]), watts="6500", usd_per_kwh="0.16", pue="1.4", wear_per_hour="0.25", amortised_per_hour="3.10"
    )
    assert gpus.price == Money.usd("1.706")
    assert gpus.amortised == Money.usd("3.10")
    assert gpus.money is MoneyKind.AMORTISED


@pytest.mark.parametrize("look_now", [lambda owned: owned.offers(OfferQuery()), lambda owned: owned])
def test_nvml_is_not_touched_before_offers_are_read(look_now: Callable[[Owned], Any]) -> None:
    nvml = FakeNvml([Card()])
    look_now(Owned(clock=ManualClock(NOW), nvml=lambda: nvml))
    assert nvml.calls == []
