"""Held capacity: recorded by people, reported by providers, or found as owned machines; and the steps by which a person
buys more by hand, as safely as through gpubroker.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from shlex import quote

from broker.app.capacity.documents import CapacityList, ChecklistStep, ProviderProblem, PurchaseChecklistResult
from broker.app.capacity.purchase_documents import join_by_name
from broker.app.capacity.purchases import find_seller
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import BrokerError, InvalidInput, MissingExtra, NoLogin, NotAllowed, UnknownName, did_you_mean
from broker.core.market.capacity import Reservation
from broker.core.market.offers import SANDBOX, CapacityType, OfferQuery
from broker.core.ports import HasReservations
from broker.core.purchases.quotes import OrderState, SellsCapacity
from broker.core.values.provider_names import NAMES, provider_name
from broker.economics.reserve.holdings import Holding, HoldingKind, RecordedHolding
from broker.procurement.comparison import CapacityDifference, charge_differences, differences, unlisted_purchases

_MAX_PROOF_BYTES = 5 << 20  # bytes


def capacity_inventory(broker: Broker, *, ask: bool = True) -> CapacityList:
    """The capacity held now. With ``ask``, every provider with a login that reports reservations is asked over the
    network; errors are returned with the results of the others."""
    from broker.app.market.market import freshen

    freshen(broker)
    owned_offers = broker.store.offers(OfferQuery(capacity_types=(CapacityType.OWNED,)))
    reservations, answered, problems = _query_reservations(broker) if ask else ([], [], [])
    return CapacityList.from_parts(
        as_of=broker.clock.now(),
        recorded=broker.store.holdings(),
        reported=reservations,
        machines=[offer for offer in owned_offers if offer.provider != SANDBOX and offer.accelerator],
        asked=answered,
        problems=[ProviderProblem(provider=name, message=problem) for name, problem in problems],
    )


def resolve_provider(broker: Broker, name: str, site: str = "", *, owned: bool) -> tuple[str, str]:
    """The known provider with that name, ignoring case, and a warning, or empty: it is unknown, or the ``site`` is
    no region of its offers. Owned machines may have any provider; one that resembles a known one is warned of."""
    from broker.app.market.market import freshen

    freshen(broker)
    offers = [series.offer for series in broker.store.market.series()]
    known_names = (*(offer.provider for offer in offers), *broker.registries.providers, *NAMES)
    names_by_key = {known.lower(): known for known in known_names}
    if not owned:
        name = provider_name(name)
    if known := names_by_key.get(name.lower()):
        regions = {offer.region for offer in offers if offer.provider == known}
        is_known = owned or not site or not regions or site in regions
        return known, "" if is_known else f"no offer of {known} is in {site!r}{did_you_mean(site, regions)}"
    suggestion, unknown_note = did_you_mean(name, names_by_key.values()), f"no provider here is called {name!r}"
    if owned:
        return name, f"{unknown_note}{suggestion} It is recorded as your own site" if suggestion else ""
    return (
        name,
        f"{unknown_note}{suggestion}"
        if suggestion
        else f"{unknown_note}; known are {', '.join(sorted(names_by_key.values()))}",
    )


def add(broker: Broker, holding: Holding, *, by: Actor, proof: Path | None = None) -> RecordedHolding:
    """Record a holding, as added by ``by``; ``proof``: a document that proves it, which is kept. Not idempotent: each
    call adds one. Raises `InvalidInput` for a document that cannot be read, and as `check_may_record`."""
    check_may_record(broker, holding, by=by)
    if proof is None:
        return broker.store.add_holding(holding, by=by.identity)
    return broker.store.add_proved_holding(holding, proof.name, _read_document(proof), by=by.identity)


def check_may_record(broker: Broker, holding: Holding, *, by: Actor) -> None:
    """Raises `NotAllowed` if a guardrail of kind `purchases` forbids ``by`` to buy the same (buyers, providers, term,
    commitment). Owned machines, and stores without such a guardrail, are not limited. No approval is requested, since
    the capacity is already bought."""
    if holding.kind is HoldingKind.OWNED:
        return
    from broker.procurement.judgment import PurchaseRequest, as_quote, objections, purchase_denials

    now = broker.clock.now()
    quote = as_quote(holding, now)
    with broker.store.reading() as reader:
        buying = PurchaseRequest(quote, quote.total, by.identity)
        denials = purchase_denials(buying, broker.policy(reader), reader, now)
    if denials:
        raise NotAllowed(
            f"it cannot be recorded, as {by.identity} may not buy it: {objections(denials)}",
            where="capacity add",
            hint="a person who may buy it can record it; `gpubroker policy show` has the rule",
        )


def read_proof(broker: Broker, number: int) -> tuple[str, bytes]:
    """Name and content of the document that proves a recorded holding. Raises `UnknownName` without that holding, and
    `InvalidInput` if none was given."""
    holdings = {recorded.number: recorded for recorded in broker.store.holdings()}
    if number not in holdings:
        raise UnknownName("holding", str(number), [str(recorded) for recorded in holdings])
    if not holdings[number].holding.proof:
        hint = "capacity add … --proof FILE keeps one"
        raise InvalidInput(f"number {number} was recorded without a document", hint=hint)
    return broker.store.holding_proof(holdings[number].holding.proof)


def _read_document(file: Path) -> bytes:
    try:
        if not file.is_file():
            raise InvalidInput("no such file", where=str(file), hint="--proof names an invoice or a contract")
        with file.open("rb") as stream:
            content = stream.read(_MAX_PROOF_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=str(file)) from error
    check_document(content, str(file))
    return content


def check_document(content: bytes, where: str) -> None:
    """Raises `InvalidInput` for a document that is empty or too large to be kept."""
    if not content or len(content) > _MAX_PROOF_BYTES:
        size = "it is empty" if not content else f"it has more than {_MAX_PROOF_BYTES >> 20} MB"
        raise InvalidInput(size, where=where, hint="documents of up to 5 MB are kept")


def remove(broker: Broker, number: int, *, by: Actor) -> RecordedHolding:
    """Delete a recorded holding. Raises `UnknownName` if there is none with that number."""
    return broker.store.remove_holding(number, by=by.identity)


def _query_reservations(broker: Broker) -> tuple[list[Reservation], list[str], list[tuple[str, str]]]:
    reservations: list[Reservation] = []
    answered: list[str] = []
    problems: list[tuple[str, str]] = []
    for name in broker.registries.providers:
        try:
            provider = broker.provider(name)
            if not isinstance(provider, HasReservations):
                continue
            reservations += provider.reservations()
            answered.append(name)
        except (NoLogin, MissingExtra):
            continue  # nobody uses this provider here
        except BrokerError as error:
            problems.append((name, str(error)))
    return reservations, answered, problems


def checklist(broker: Broker, provider: str, *, unlike: bool = False) -> PurchaseChecklistResult:
    """The checklist for a provider, known here or not. Sends no request, changes nothing. Raises `InvalidInput` for an
    empty name, and `UnknownName` for one that resembles a known name, unless ``unlike``."""
    if not provider.strip():
        raise InvalidInput("the provider's name is empty", where="PROVIDER")
    known_names = sorted(
        {*broker.registries.providers, *(series.offer.provider for series in broker.store.market.series())}
    )
    name = resolve_provider(broker, provider, owned=False)[0]
    if not unlike and name not in known_names and did_you_mean(name, known_names):
        raise UnknownName("provider", name, known_names)
    steps = (
        ("Compare: what the same use costs on demand, on spot and on owned machines", "gpubroker advise buy-or-rent"),
        ("See what the budget has left for the whole commitment, not for its first month", "gpubroker budget"),
        (
            "Get the offer in writing: machines, network, place, first and last day, price in all, how it is paid, what"
            " ending it early costs, and whether it renews by itself",
            "",
        ),
        ("If it cannot be ended: have two people approve who are neither the buyer nor each other", ""),
        ("Order it once. No answer? Ask the provider before ordering again", ""),
        ("Keep the order's number and the signed contract or the invoice as a file", ""),
        (
            "Record it, with the file: it counts in plans, findings and the cost of a GPU-hour",
            f"gpubroker capacity add reservation GPU:COUNT --machines N --provider {quote(name)} --site PLACE"
            " --price USD --from DAY --until DAY --order NUMBER --proof FILE",
        ),
        ("Let jobs use it: name its machines to an engine (Slurm, Kubernetes, SkyPilot over SSH)", "gpubroker doctor"),
        ("Each month: what was used of it", "gpubroker policy findings"),
        ("A month before its end, and before it renews by itself: decide again", "gpubroker capacity plan"),
    )
    checklist_steps = [ChecklistStep(what=text, command=command) for text, command in steps]
    return PurchaseChecklistResult(provider=name, sells=_products(broker, name), steps=checklist_steps)


def _products(broker: Broker, name: str) -> list[str]:
    if name not in broker.registries.providers:
        return []
    try:
        provider = broker.provider(name)
    except BrokerError:
        return []
    return sorted(provider.products) if isinstance(provider, SellsCapacity) else []


@dataclass(frozen=True, slots=True)
class CapacityCheck:
    """`capacity list --check`. ``listed``: the number of reservations and commitments that the providers list;
    ``asked``: the providers that answered; ``problems``: the errors of the others, by name."""

    as_of: datetime
    differences: tuple[CapacityDifference, ...]
    listed: int
    asked: tuple[str, ...]
    problems: Mapping[str, str]


def check_capacity(broker: Broker) -> CapacityCheck:
    """Query every provider with a login for the account's capacity, and compare. Changes nothing."""
    purchases = broker.store.purchases(closed=True)  # read first: an order placed meanwhile is not a difference
    reservations, answered, problems = _query_reservations(broker)
    now, missing_purchases = broker.clock.now(), []
    for purchase in unlisted_purchases(purchases, reservations, now):
        provider = purchase.quote.provider
        if provider not in answered:
            continue  # not asked, or failed: reported in ``problems``
        try:  # it may be in a region that was not asked
            orders = find_seller(broker, purchase.quote).find_orders(purchase.quote, purchase.id)
        except BrokerError as error:
            problems.append((provider, str(error)))
            continue
        if not any(order.state is OrderState.HELD for order in orders):
            missing_purchases.append(purchase)
    capacity_differences = differences(purchases, broker.store.holdings(), reservations, missing_purchases)
    with broker.store.reading() as reader:
        capacity_differences += charge_differences(purchases, reader.charges(), now)
    return CapacityCheck(now, tuple(capacity_differences), len(reservations), tuple(answered), join_by_name(problems))
