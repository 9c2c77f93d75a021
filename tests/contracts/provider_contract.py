"""What every provider promises (`broker.core.ports.Provider`), as a suite.

A provider's own test file subclasses `ProviderContract`, names the registered provider that it tests, and defines it::

    class TestOwned(ProviderContract):
        plugin = "owned"

        @pytest.fixture
        def provider(self, clock):
            return Owned(clock=clock)

The simulated market of the fixture stays the same between two polls; the suite moves only the clock. Every check takes
the same two arguments, so that `test_provider_contract_bites.py` can run each of them on a faulty provider.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import ClassVar

import pytest

from broker.core.market.offers import Availability, CapacityType, Interconnect, MoneyKind, Offer, OfferQuery, SkippedRow
from broker.core.ports import Provider
from broker.core.values.accelerators import canonical
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
EVERYTHING = OfferQuery()
PLAIN_NAME = re.compile(r"[a-z][a-z0-9_-]*")
CODE = re.compile(r"[a-z][a-z0-9_]*")


def poll(provider: Provider, query: OfferQuery = EVERYTHING) -> list[Offer]:
    return [row for row in provider.offers(query) if isinstance(row, Offer)]


def wanted(offer: Offer, query: OfferQuery) -> bool:
    """Whether the query matches this offer: the minimum that a provider has to yield for it."""
    return (
        (not query.accelerators or offer.accelerator in query.accelerators)
        and (query.count is None or offer.count >= query.count)
        and (not query.capacity_types or offer.capacity_type in query.capacity_types)
        and (not query.providers or any(fnmatchcase(offer.provider, name) for name in query.providers))
        and (not query.regions or any(fnmatchcase(offer.region, region) for region in query.regions))
        and (query.max_price is None or (offer.price is not None and offer.price <= query.max_price))
    )


def queries_about(offers: Iterable[Offer]) -> set[OfferQuery]:
    """Narrow queries that some of these offers match."""
    questions = set()
    for offer in offers:
        questions.add(OfferQuery(capacity_types=(offer.capacity_type,)))
        questions.add(OfferQuery(providers=(offer.provider,)))
        questions.add(OfferQuery(regions=(f"{offer.region[:3]}*",)))
        if offer.accelerator:
            questions.add(OfferQuery(accelerators=(offer.accelerator,), count=offer.count))
        if offer.price is not None:
            questions.add(
                OfferQuery(
                    accelerators=(offer.accelerator,) if offer.accelerator else (),
                    capacity_types=(offer.capacity_type,),
                    max_price=offer.price,
                )
            )
    return questions


def a_few(questions: Iterable[OfferQuery], of_each: int = 2) -> list[OfferQuery]:
    """Some of each kind of query, spread over all of them: each is a poll, and a large market has a hundred."""
    kinds = defaultdict(list)
    for question in sorted(questions, key=repr):
        kinds[tuple(one.name for one in fields(question) if getattr(question, one.name))].append(question)
    return [question for asked in kinds.values() for question in asked[:: -(-len(asked) // of_each)]]


def loses_nothing(provider: Provider, every: Iterable[Offer], questions: Iterable[OfferQuery]) -> None:
    """Raises AssertionError for an offer that matches the query and is not in the answer."""
    for query in questions:
        got = {offer.id for offer in poll(provider, query)}
        missing = [offer.id for offer in every if wanted(offer, query) and offer.id not in got]
        assert not missing, f"{query} loses {missing[:3]}"


class ProviderContract:
    """Subclass it, set ``plugin``, and define the fixture ``provider``."""

    plugin: ClassVar[str]
    _offered: ClassVar[list[Offer]]

    def offered(self, provider: Provider) -> list[Offer]:
        """All offers. Tests that only read them share one poll, as the fixture's world stays the same."""
        cls = type(self)
        if "_offered" not in vars(cls):
            cls._offered = poll(provider)
        return cls._offered

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock(NOW)

    def test_it_has_its_registered_name(self, provider: Provider, clock: ManualClock) -> None:
        assert provider.name == self.plugin, f"calls itself {provider.name!r}, is registered as {self.plugin!r}"

    def test_it_yields_offers_and_skipped_rows_and_nothing_else(self, provider: Provider, clock: ManualClock) -> None:
        for row in provider.offers(EVERYTHING):
            assert isinstance(row, Offer | SkippedRow), f"yields {row!r}"
            if isinstance(row, SkippedRow):
                assert CODE.fullmatch(row.reason), f"a reason that cannot be counted: {row.reason!r}"
                assert row.detail, f"skipped as {row.reason} without a sample of why"

    def test_it_offers_something(self, provider: Provider, clock: ManualClock) -> None:
        assert self.offered(provider), "no offers: nothing else in this suite means anything"

    def test_a_price_is_positive_or_unknown_and_zero_only_where_that_makes_sense(
        self, provider: Provider, clock: ManualClock
    ) -> None:
        for offer in self.offered(provider):
            assert offer.price is None or isinstance(offer.price, Money), f"{offer.id}: price {offer.price!r}"
            assert offer.price is None or offer.has_valid_price(), f"{offer.id}: a price of {offer.price}"
            assert offer.amortised is None or offer.amortised >= Money.ZERO, f"{offer.id}: {offer.amortised}"

    def test_a_price_says_when_in_utc_and_not_in_the_future(self, provider: Provider, clock: ManualClock) -> None:
        for offer in poll(provider):
            assert offer.as_of.utcoffset() == timedelta(0), f"{offer.id}: as_of {offer.as_of!r} is not in UTC"
            assert offer.as_of <= clock.now(), f"{offer.id}: as_of {offer.as_of} is after {clock.now()}"

    def test_a_price_says_who_says_so(self, provider: Provider, clock: ManualClock) -> None:
        for offer in self.offered(provider):
            assert offer.source.strip(), f"{offer.id}: no source"

    def test_an_offer_says_where_and_what(self, provider: Provider, clock: ManualClock) -> None:
        for offer in self.offered(provider):
            assert PLAIN_NAME.fullmatch(offer.provider), f"provider {offer.provider!r}"
            for part in (offer.region, offer.instance_type, "-" if offer.zone is None else offer.zone):
                assert part.strip() == part != "", f"{offer.id}: an empty name"
                assert "/" not in part, f"{offer.id}: a name with / in it"
                assert "@" not in part, f"{offer.id}: a name with @ in it"

    def test_ids_are_unique(self, provider: Provider, clock: ManualClock) -> None:
        twice = [name for name, number in Counter(offer.id for offer in self.offered(provider)).items() if number > 1]
        assert not twice, f"two offers of one id: {twice[:3]}"

    def test_ids_are_the_same_at_the_next_poll(self, provider: Provider, clock: ManualClock) -> None:
        before = {offer.id for offer in self.offered(provider)}
        clock.advance(timedelta(minutes=1))
        changed = before ^ {offer.id for offer in poll(provider)}
        assert not changed, f"ids that come and go: {sorted(changed)[:3]}"

    def test_what_cannot_be_had_is_kept_and_says_why(self, provider: Provider, clock: ManualClock) -> None:
        for offer in self.offered(provider):
            assert isinstance(offer.availability, Availability), f"{offer.id}: {offer.availability!r}"
            gone = offer.availability in (Availability.UNAVAILABLE, Availability.NO_QUOTA)
            assert bool(offer.unavailable_because) == gone, f"{offer.id}: {offer.availability} and no reason"
            assert not (offer.slots == 0 and offer.availability is Availability.AVAILABLE), f"{offer.id}: 0 available"

    def test_accelerators_have_their_one_name(self, provider: Provider, clock: ManualClock) -> None:
        for offer in self.offered(provider):
            assert (offer.accelerator is None) == (offer.count == 0), f"{offer.id}: {offer.count} accelerators"
            assert offer.count >= 0, f"{offer.id}: {offer.count} accelerators"
            if offer.accelerator is not None:
                assert canonical(offer.accelerator) == offer.accelerator, f"{offer.id}: not the canonical name"

    def test_kinds_are_of_the_known_kinds(self, provider: Provider, clock: ManualClock) -> None:
        for offer in self.offered(provider):
            assert isinstance(offer.capacity_type, CapacityType), f"{offer.id}: {offer.capacity_type!r}"
            assert isinstance(offer.money, MoneyKind), f"{offer.id}: {offer.money!r}"
            assert offer.interconnect is None or isinstance(offer.interconnect, Interconnect), f"{offer.id}"

    def test_only_reserved_capacity_has_a_term(self, provider: Provider, clock: ManualClock) -> None:
        for offer in self.offered(provider):
            if offer.term_months is not None:
                assert offer.capacity_type is CapacityType.RESERVED, f"{offer.id}: a term"
                assert offer.term_months > 0, f"{offer.id}: a term of {offer.term_months} months"

    def test_figures_are_in_their_range(self, provider: Provider, clock: ManualClock) -> None:
        for offer in self.offered(provider):
            for figure in (offer.cpus, offer.memory_gib):
                assert figure is None or figure > 0, f"{offer.id}: {figure} CPUs or GiB"
            assert offer.interruption_rate is None or offer.interruption_rate >= 0, f"{offer.id}: interruption rate"
            assert offer.slots is None or offer.slots >= 0, f"{offer.id}: {offer.slots} machines"
            assert offer.billing.minimum >= timedelta(0), f"{offer.id}: billing minimum"
            assert offer.billing.granularity > timedelta(0), f"{offer.id}: billing granularity"
            assert offer.max_age is None or offer.max_age > timedelta(0), f"{offer.id}: max age"

    def test_an_engine_is_named_or_there_is_none(self, provider: Provider, clock: ManualClock) -> None:
        for offer in self.offered(provider):
            assert offer.engine is None or PLAIN_NAME.fullmatch(offer.engine), f"{offer.id}: engine {offer.engine!r}"

    def test_a_commitment_for_sale_is_run_by_no_engine(self, provider: Provider, clock: ManualClock) -> None:
        for offer in self.offered(provider):
            assert offer.term_months is None or offer.engine is None, f"{offer.id}: a term to be bought first"

    def test_pretend_capacity_says_so_and_real_capacity_never_does(
        self, provider: Provider, clock: ManualClock
    ) -> None:
        for offer in self.offered(provider):
            pretend = offer.money is MoneyKind.SANDBOX
            assert pretend == (offer.provider == "sandbox"), f"{offer.id}: half pretend"
            assert offer.engine is None or pretend == (offer.engine == "sandbox"), f"{offer.id}: on {offer.engine}"
            assert not pretend or offer.region.startswith("sandbox"), f"{offer.id}: a pretend place with a real name"

    def test_owned_capacity_is_amortised_and_no_other_cash_is(self, provider: Provider, clock: ManualClock) -> None:
        for offer in self.offered(provider):
            if offer.capacity_type is CapacityType.OWNED:
                assert offer.money is MoneyKind.AMORTISED, f"{offer.id}: owned, and yet {offer.money}"
            if offer.capacity_type in (CapacityType.ON_DEMAND, CapacityType.SPOT):
                assert offer.money is not MoneyKind.AMORTISED, f"{offer.id}: {offer.capacity_type}, not yet paid"

    def test_a_reference_price_has_no_age_limit(self, provider: Provider, clock: ManualClock) -> None:
        for offer in self.offered(provider):
            assert not offer.reference or offer.max_age is None, f"{offer.id}: a reference price with an age limit"

    def test_a_query_gets_at_least_what_it_asks_for(self, provider: Provider, clock: ManualClock) -> None:
        every = poll(provider)
        loses_nothing(provider, every, a_few(queries_about(every)))

    @pytest.mark.system
    def test_any_query_gets_at_least_what_it_asks_for(self, provider: Provider, clock: ManualClock) -> None:
        every = poll(provider)
        loses_nothing(provider, every, queries_about(every))

    def test_it_can_be_asked_again_and_again(self, provider: Provider, clock: ManualClock) -> None:
        started = iter(provider.offers(EVERYTHING))
        next(started, None)
        first = [row for row in provider.offers(EVERYTHING) if isinstance(row, Offer)]
        second = [row for row in provider.offers(EVERYTHING) if isinstance(row, Offer)]
        assert [offer.id for offer in first] == [offer.id for offer in second], "the second answer is another"
