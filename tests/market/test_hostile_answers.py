"""After a hostile answer, what was known stays, marked, and no job starts on a suspect row."""

from pathlib import Path

import pytest

from broker.core.market.market_judge import levels_of
from broker.core.market.offers import Doubt, Offer, OfferQuery
from broker.core.values.clock import ManualClock
from broker.market.suspicion import Suspicion
from providers.pricebook import Pricebook
from tests.contracts.provider_contract import NOW
from tests.market.hostile import answers_of, believed_and_suspicious, case, cases, outcome

LISTED = levels_of(
    (offer.accelerator or "", offer.capacity_type.value, offer.provider, float(each.micros))
    for offer in Pricebook(clock=ManualClock(NOW)).offers(OfferQuery())
    if isinstance(offer, Offer) and (each := offer.price_per_unit) is not None
)


@pytest.mark.parametrize("name", ["lambda", "oci", "ovh", "verda", "gcp", "gpuhunt: daytona"])
def test_ordinary_prices_of_machines_that_are_well_known_are_compared_and_believed(tmp_path: Path, name: str) -> None:
    believed, suspicious = believed_and_suspicious(case(*answers_of(name)), tmp_path, Suspicion(LISTED))
    assert believed
    assert [(offer.machine, offer.price, offer.doubt_detail) for offer in suspicious] == []


def test_thirteen_gpus_for_the_price_of_one_are_suspicious(tmp_path: Path) -> None:
    believed, suspicious = believed_and_suspicious(case(*answers_of("gpuhunt: hotaisle")), tmp_path, Suspicion(LISTED))
    assert max(offer.count for offer in believed) < 4, "a quarter of the lowest list price is too low"
    assert {offer.doubt for offer in suspicious} == {Doubt.TOO_LOW}


def test_what_was_known_stays_marked(tmp_path: Path) -> None:
    of = case(*answers_of("vast"))
    assert outcome(of, "half", tmp_path).faults == ()


@pytest.mark.system
def test_so_it_is_for_every_adapter(tmp_path: Path) -> None:
    for name, of in cases():
        (tmp_path / name).mkdir()
        for kind in of.hostile:
            assert outcome(of, kind, tmp_path / name).faults == (), f"{name}: {kind}"
