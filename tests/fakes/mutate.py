"""Damages answers, with a seed, so that each damage can be repeated."""

import copy
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from broker.core.errors import BrokerError
from broker.core.market.offers import Offer, OfferQuery, SkippedRow
from broker.core.ports import Provider
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from tests.contracts.provider_contract import NOW
from tests.fakes.server import FakeServer, HttpAnswer, HttpRequest, Market, encode

_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, -0.01, 1, 10**15, 10**400, Decimal("1e-30"), Decimal("1e300"), Decimal("0.0000004"), "",
    "NaN", "free", "12.5", "a/b@c", " ", "x" * 5000, "\u0000", "\u202e", [], {}, [[]], {"a": 1}, [None], float("nan"),
    float("inf"), float("-inf"),
)  # fmt: skip
LOWEST, HIGHEST = Money.usd("0.0001"), Money.usd(100_000)


@dataclass(frozen=True, slots=True)
class DamagedBody:
    """A damaged body, and the row that was damaged; None if it may be any.

    ``what``: the damage; ``readable``: whether it is still in its original format.
    """

    body: bytes
    row: int | None
    what: str = ""
    readable: bool = True


def damaged_bytes(content: bytes, chance: random.Random) -> bytes:
    """The file with one to three bytes changed or added, or its end removed; at least the first half is kept."""
    raw = bytearray(content)
    for _ in range(chance.randint(1, 3)):
        match chance.randrange(3):
            case 0:
                del raw[chance.randrange(len(raw) // 2, len(raw)) :]
            case 1:
                raw[chance.randrange(len(raw))] = chance.randrange(256)
            case _:
                raw.insert(chance.randrange(len(raw)), chance.randrange(32, 127))
    return bytes(raw)


def mutate(body: Any, rows: Callable[[Any], Any], chance: random.Random) -> DamagedBody:
    """Damage one row in three of four cases, otherwise the bytes.

    ``rows``: finds the list (or mapping) of rows in the body.
    """
    if chance.random() < 0.25:
        raw = bytearray(encode(body))
        for _ in range(chance.randint(1, 4)):
            match chance.randrange(3):
                case 0:
                    del raw[chance.randrange(len(raw)) :]
                case 1:
                    raw[chance.randrange(len(raw))] = chance.randrange(256)
                case _:
                    raw.insert(chance.randrange(len(raw)), chance.randrange(32, 127))
            if len(raw) < 2:
                break
        return DamagedBody(bytes(raw), None, _changes(body, bytes(raw)), is_json(bytes(raw)))
    damaged = copy.deepcopy(body)
    found = rows(damaged)
    keys = list(found) if isinstance(found, dict) else list(range(len(found)))
    index = chance.randrange(len(keys))
    steps: list[str] = []
    found[keys[index]] = _damaged(found[keys[index]], chance, steps)
    return DamagedBody(encode(damaged), index, f"row {index}: {'.'.join(steps)}")


def _changes(before: Any, raw: bytes) -> str:
    """The changes made by damaged bytes, in the words of `_damaged`; empty if the body is not JSON any more."""
    try:
        after = json.loads(raw, parse_float=Decimal)
    except (ValueError, RecursionError):
        return ""
    return "; ".join(_differences(before, after, ""))


def _differences(before: Any, after: Any, way: str) -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        gone = [f"{way}{key}.deleted" for key in before if key not in after]
        both = [key for key in before if key in after]
        return gone + [one for key in both for one in _differences(before[key], after[key], f"{way}{key}.")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [one for at, (old, new) in pairs for one in _differences(old, new, f"{way}{at}.")]
    return [] if before == after else [f"{way}= {after!r:.40}"]


def _damaged(value: Any, chance: random.Random, steps: list[str]) -> Any:
    """The value with an implausible change somewhere in it. ``steps``: receives the changes, for messages."""
    inner = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not inner or chance.random() < 0.05:
        odd = chance.choice(_ODD)
        steps.append(f"= {odd!r:.40}")
        return odd
    key = chance.choice(inner)
    steps.append(str(key))
    if chance.random() < 0.15:
        steps.append("deleted")
        del value[key]
    elif isinstance(value[key], dict | list) and value[key] and chance.random() < 0.8:
        value[key] = _damaged(value[key], chance, steps)
    else:
        value[key] = chance.choice(_ODD)
        steps.append(f"= {value[key]!r:.40}")
    return value


class Hijacked:
    """A market whose answer at one path, to requests that contain some text, is replaced by the last set body."""

    def __init__(self, market: Market, path: str, says: str = "") -> None:
        self.market = market
        self.path = path
        self.says = says
        self.body: bytes | None = None

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if self.body is not None and request.path == self.path and self.says in str(request.body):
            return HttpAnswer(200, self.body)
        return self.market(request)


_PRICED = r"(?i)price|bid|cost|rate|cents|dph|fee|value|units|nanos|amount|unit|row \d+: (= |$)"


@dataclass(frozen=True, slots=True)
class AdapterAnswer:
    """The result of an adapter for an answer. ``error``: the error with which it stopped."""

    offers: frozenset[Offer]
    skipped: Counter[SkippedRow]
    error: BrokerError | None = None


@dataclass(frozen=True, slots=True)
class MutationTarget:
    """An adapter and the answer to damage.

    ``ask``: makes the adapter read a body, None for the undamaged one, and raises only bugs. ``groups``: the offers
    that belong together, by group; ``group``: that of a damaged row. ``fair``: whether the damage removes the offer
    from the answer in a valid way; ``prices``: whether the damage may change a price.
    """

    damage: Callable[[random.Random], DamagedBody]
    ask: Callable[[bytes | None], AdapterAnswer]
    groups: Mapping[Any, frozenset[Offer]]
    group: Callable[[int], Any] = lambda row: row
    fair: str = r"$^"
    prices: str = _PRICED


@dataclass(slots=True)
class MutationTally:
    """The results of the damaged answers, with messages.

    ``wrong``: a price that exists in no answer, or of an undamaged row, or that a change of another value of its row
    changed; ``untold``: an offer that disappeared without a report.
    """

    mutants: int = 0
    readable: int = 0
    offers: int = 0
    crashes: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        return [*self.crashes, *self.wrong, *self.untold]


def tally_mutants(target: MutationTarget, *, mutants: int, seed: int) -> MutationTally:
    """Pass ``mutants`` damaged answers to the adapter and count its results.

    A crash is any exception except a `BrokerError`, or any error if one row is damaged. Every price must be positive
    and plausible, every offer complete, and the offers of undamaged rows unchanged. A lost offer must be reported: by a
    skipped row, by an error, or by another offer in its place.
    """
    chance, tally = random.Random(seed), MutationTally(mutants)
    whole = frozenset[Offer]().union(*target.groups.values())
    prices = {offer.id: offer.price for offer in whole}
    usual = target.ask(None).skipped
    for number in range(mutants):
        mutant = target.damage(chance)
        where = f"mutant {number} of seed {seed}: {mutant.what}"
        tally.readable += mutant.readable
        try:
            answer = target.ask(mutant.body)
        except Exception as bug:  # noqa: BLE001  # whatever it is, it is what is looked for
            tally.crashes.append(f"{where}: {type(bug).__name__}: {bug}")
            continue
        if answer.error is not None and mutant.row is not None:
            tally.crashes.append(f"{where}: one odd row is no reason to give up: {answer.error}")
            continue
        tally.offers += len(answer.offers)
        tally.wrong += [f"{where}: {offer.id}: {offer.price}" for offer in answer.offers if not _sane(offer)]
        if mutant.row is not None:
            hit = target.group(mutant.row)
            expected = frozenset[Offer]().union(*(own for name, own in target.groups.items() if name != hit))
            lost = sorted(offer.id for offer in expected - answer.offers)
            if lost:
                tally.wrong.append(f"{where}: loses or changes {lost[:3]}")
            elif not re.search(target.prices, mutant.what):
                moved = [one.id for one in answer.offers if prices.get(one.id, one.price) != one.price]
                tally.wrong += [f"{where}: changes the price of {moved[:3]}"] if moved else []
        fewer = len(answer.offers) < len(whole) and not answer.offers - whole
        told = bool(answer.skipped - usual) or answer.error is not None
        if fewer and not told and not re.search(target.fair, mutant.what):
            tally.untold.append(where)
    return tally


def _sane(offer: Offer) -> bool:
    return (
        offer.price is not None
        and LOWEST <= offer.price <= HIGHEST
        and 0 <= offer.count <= 1024
        and all(part.strip() for part in (offer.region, offer.instance_type))
    )


def answer_of(rows: Iterator[Offer | SkippedRow]) -> AdapterAnswer:
    """The adapter's result, with the dates of its offers set to `NOW`. Raises only bugs."""
    offers: set[Offer] = set()
    skipped, error = Counter[SkippedRow](), None
    try:
        for row in rows:
            if isinstance(row, Offer):
                offers.add(replace(row, as_of=NOW))
            else:
                assert row.reason, "a skipped row without a reason"
                skipped[row] += 1
    except BrokerError as failure:
        error = failure
    return AdapterAnswer(frozenset(offers), skipped, error)


@dataclass(frozen=True, slots=True)
class JsonAnswers:
    """An adapter that reads JSON over HTTP, and the answer at ``path`` that is damaged.

    ``rows``: finds the list (or mapping) of its rows. ``make``: creates the adapter, from the server's URL and a clock.
    ``says``: if there are several requests to the path, text in the body of the one whose answer is damaged.
    """

    make: Callable[[str, ManualClock], Provider]
    market: Market
    path: str
    body: Any
    rows: Callable[[Any], Any]
    fair: str = r"$^"
    prices: str = _PRICED
    says: str = ""

    def hijacked(self) -> Hijacked:
        """The market, with the answer to be replaced."""
        return Hijacked(self.market, self.path, self.says)

    @contextmanager
    def target(self) -> Iterator[MutationTarget]:
        """The target, served on loopback."""
        body = json.loads(encode(self.body), parse_float=Decimal)  # so that rows share no objects
        hijacked = self.hijacked()
        with FakeServer(hijacked) as server:
            provider = self.make(server.url, ManualClock(NOW))

            def ask(damaged: bytes | None) -> AdapterAnswer:
                hijacked.body = encode(body) if damaged is None else damaged
                return answer_of(self.make(server.url, ManualClock(NOW)).offers(OfferQuery()))

            alone = dict(enumerate(map(frozenset, _offers_by_row(provider, hijacked, body, self.rows))))
            yield MutationTarget(
                lambda chance: mutate(body, self.rows, chance), ask, alone, fair=self.fair, prices=self.prices
            )


def check_tally(tally: MutationTally) -> None:
    """Check that there was no crash, no wrong price and no unreported loss, and that at least half of the mutants could
    be read.
    """
    assert not tally.faults, f"{len(tally.faults)} of {tally.mutants} mutants:\n" + "\n".join(tally.faults[:40])
    assert 2 * tally.readable >= tally.mutants, f"only {tally.readable} of {tally.mutants} mutants are readable"


def _offers_by_row(provider: Provider, hijacked: Hijacked, body: Any, rows: Callable[[Any], Any]) -> list[set[Offer]]:
    found = []
    keys = list(rows(body)) if isinstance(rows(body), dict) else list(range(len(rows(body))))
    for key in keys:
        single = copy.deepcopy(body)
        inside = rows(single)
        if isinstance(inside, dict):
            kept = inside[key]
            inside.clear()
            inside[key] = kept
        else:
            inside[:] = [inside[key]]
        hijacked.body = encode(single)
        offers = [row for row in provider.offers(OfferQuery()) if isinstance(row, Offer)]
        found.append({replace(offer, as_of=NOW) for offer in offers})
    assert all(found), "every row of the undamaged answer has to be an offer, or its loss is not seen"
    return found


def is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True
