"""Damages answers on purpose: seeded, so that what went wrong can be had again."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
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
    """A damaged body, and which row of it was damaged: None when it may be any of them. ``what``: the damage."""

    body: bytes
    row: int | None
    what: str = ""


def damaged_bytes(content: bytes, chance: random.Random) -> bytes:
    """The file with one to three bytes changed or added, or its end cut off: its first half at least is left."""
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
    """Damage to one row in three of four cases, otherwise to the bytes. ``rows``: finds the list (or mapping) of rows
    in the body."""
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
        return DamagedBody(bytes(raw), None, _changes(body, bytes(raw)))
    damaged = copy.deepcopy(body)
    found = rows(damaged)
    keys = list(found) if isinstance(found, dict) else list(range(len(found)))
    index = chance.randrange(len(keys))
    steps: list[str] = []
    found[keys[index]] = _damaged(found[keys[index]], chance, steps)
    return DamagedBody(encode(damaged), index, f"row {index}: {'.'.join(steps)}")


def _changes(before: Any, raw: bytes) -> str:
    """What damaged bytes changed, in the words of `_damaged`; empty where they are JSON no longer."""
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
    """The value with something odd somewhere in it. ``steps``: what was done, for messages."""
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
    """A market whose answer at one path is replaced by the body set last."""

    def __init__(self, market: Market, path: str) -> None:
        self.market = market
        self.path = path
        self.body: bytes | None = None

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if self.body is not None and request.path == self.path:
            return HttpAnswer(200, self.body)
        return self.market(request)


def check_mutants(
    make: Callable[[str, ManualClock], Provider],
    market: Market,
    path: str,
    body: Any,
    rows: Callable[[Any], Any],
    *,
    mutants: int,
    seed: int,
    fair: str = r"$^",
) -> None:
    """Ask the provider for ``mutants`` damaged answers and check what it makes of each.

    No exception but a `BrokerError`; every price positive and of this world; every offer whole; and where one row is
    damaged, the offers of the others are there as before. An offer that is lost is told: by a skipped row, by an error,
    or by another offer in its place; but for damage that ``fair``, a regular expression, matches: it says itself that
    there is no such offer. At least half of the mutants must be JSON still.
    """
    body = json.loads(encode(body), parse_float=Decimal)  # so that no two rows share a part
    chance = random.Random(seed)
    hijacked = Hijacked(market, path)
    readable = 0
    with FakeServer(hijacked) as server:
        clock = ManualClock(NOW)
        alone = _offers_by_row(make(server.url, clock), hijacked, body, rows)
        hijacked.body = encode(body)
        usual = sum(isinstance(row, SkippedRow) for row in make(server.url, clock).offers(OfferQuery()))
        whole = set[Offer]().union(*alone)
        untold: list[str] = []
        for number in range(mutants):
            mutant = mutate(body, rows, chance)
            hijacked.body = mutant.body
            readable += _is_json(mutant.body)
            offers: list[Offer] = []
            skipped, failed = 0, False
            try:
                for found in make(server.url, clock).offers(OfferQuery()):
                    if isinstance(found, Offer):
                        offers.append(replace(found, as_of=NOW))
                    else:
                        assert found.reason, f"mutant {number} of seed {seed}"
                        skipped += 1
            except BrokerError:
                failed = True
                assert mutant.row is None, f"mutant {number} of seed {seed}: one odd row is no reason to give up"
            for offer in offers:
                where = f"mutant {number} of seed {seed}: {offer.id}"
                assert offer.price is not None, where
                assert LOWEST <= offer.price <= HIGHEST, f"{where}: {offer.price}"
                assert offer.count >= 0, where
                assert all(part.strip() for part in (offer.region, offer.instance_type)), where
            if mutant.row is not None:
                expected = {offer for index, own in enumerate(alone) if index != mutant.row for offer in own}
                missing = expected - set(offers)
                assert not missing, f"mutant {number} of seed {seed} loses {sorted(o.id for o in missing)[:3]}"
            unheard = len(offers) < len(whole) and not set(offers) - whole and skipped <= usual and not failed
            if unheard and not re.search(fair, mutant.what):
                untold.append(f"mutant {number} of seed {seed}: {mutant.what}")
    lost = "\n".join(untold[:40])
    assert not untold, f"{len(untold)} of {mutants} mutants lose an offer, and nothing is told:\n{lost}"
    assert 2 * readable >= mutants, f"only {readable} of {mutants} mutants are JSON"


def _offers_by_row(provider: Provider, hijacked: Hijacked, body: Any, rows: Callable[[Any], Any]) -> list[set[Offer]]:
    """What each row gives on its own."""
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


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True
