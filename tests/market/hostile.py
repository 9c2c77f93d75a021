"""Gives each adapter a good answer and then a hostile one; what the store made of it.

Hostile answers: empty, half of the rows, an HTML page, cut in the middle, every row twice, another currency, and the
good answer by a clock that was set back or far ahead. Of each it holds: what was known stays current; what the answer
did not tell again is in doubt, or its poll is a failure; and no job starts on an offer in doubt.
"""

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from broker.core.job.jobs import Job, MachineRequest
from broker.core.job.reasons import Reason
from broker.core.market.offers import Availability, Offer
from broker.core.ports import Provider
from broker.core.values.clock import ManualClock
from broker.market.poller import PollRequest, PollResult, PollSession
from broker.market.suspicion import Suspicion
from broker.placement.feasibility import PreparedJob, fit
from broker.store import Store, open_store
from tests.bench.bench_plan import CONDITIONS
from tests.contracts.provider_contract import NOW
from tests.fakes.mutate import JsonAnswers
from tests.fakes.server import FakeServer, encode

HTML = b"<html><body>Down for maintenance</body></html>"


Served = Callable[[], AbstractContextManager[tuple[str, Callable[[bytes], None]]]]
"""A service in place of an adapter's, for as long as the ``with`` lasts: its URL, and what sets its answer."""


@dataclass(frozen=True)
class HostileCase:
    """An adapter (for the service's URL and a clock), the service, its good answer, and hostile ones by kind; a kind
    that its answers cannot have is left out."""

    make: Callable[[str, ManualClock], Provider]
    served: Served
    good: bytes
    hostile: dict[str, bytes]


def over_http(answers: JsonAnswers, good: bytes, hostile: dict[str, bytes]) -> HostileCase:
    """The case of an adapter over HTTP."""

    @contextmanager
    def served() -> Iterator[tuple[str, Callable[[bytes], None]]]:
        hijacked = answers.hijacked()
        with FakeServer(hijacked) as server:
            yield server.url, partial(setattr, hijacked, "body")

    return HostileCase(answers.make, served, good, hostile)


def _grown(answers: JsonAnswers, again: Callable[[Any, int], Any] | None) -> Any:
    """The body with each row ten times, under other names, so that half of it is a market."""
    body = json.loads(encode(answers.body), parse_float=Decimal)
    rows = answers.rows(body)
    if again is not None and isinstance(rows, list):
        rows += [again(copy.deepcopy(row), number) for row in list(rows) for number in range(1, 10)]
    elif again is not None:
        rows |= {
            f"{key}-{number}": again(copy.deepcopy(row), number) for key, row in rows.items() for number in range(9)
        }
    return body


def _changed(body: Any, rows: Callable[[Any], Any], change: Callable[[Any], Any]) -> bytes:
    """The body with its rows changed: a list, or the pairs of a mapping."""
    other = copy.deepcopy(body)
    found = rows(other)
    if isinstance(found, dict):
        kept = dict(change(list(found.items())))
        found.clear()
        found.update(kept)
    else:
        found[:] = change(list(found))
    return encode(other)


def case(answers: JsonAnswers, again: Callable[[Any, int], Any] | None = None) -> HostileCase:
    body = _grown(answers, again)
    good = encode(body)
    hostile = {
        "empty": _changed(body, answers.rows, lambda rows: []),
        "half": _changed(body, answers.rows, lambda rows: rows[: len(rows) // 2]),
        "HTML": HTML,
        "cut": good[: len(good) // 2],
        "repeated": _changed(body, answers.rows, lambda rows: rows + rows),
    }
    for usual, other in ((b'"USD"', b'"EUR"'), (b'"EUR"', b'"CHF"')):  # what is converted is one currency alone
        if usual in good:
            hostile["currency"] = good.replace(usual, other)
    return over_http(answers, good, {**hostile, "set back": good, "far ahead": good})


def _renamed(**changes: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
    def again(row: Any, number: int) -> Any:
        return {**row, **{key: change(row.get(key), number) for key, change in changes.items()}}

    return again


def _numbered(value: Any, number: int) -> Any:
    return value + 1000 * number if isinstance(value, int) else f"{value}-{number}"


def _tail_row(row: Any, number: int) -> Any:
    known = {"id", "name", "slug", "region"} & {key for key, value in row.items() if isinstance(value, str)}
    return {**row, **{key: f"{row[key]}-{number}" for key in known}}


def _larger(row: Any, number: int) -> Any:
    """Hot Aisle's machines have no names but their number of GPUs."""
    row["Specs"]["gpus"][0]["count"] += 4 * number
    return row


def _more_flavors(row: Any, number: int) -> Any:
    return {**row, "flavors": [{**one, "name": f"{one['name']}-{number}"} for one in row["flavors"]]}


def _other_instance(row: Any, number: int) -> Any:
    row["properties"]["instance"]["offer_id"] += f"-{number}"
    return row


def _lambda_row(row: Any, number: int) -> Any:
    about = row["instance_type"]
    return {**row, "instance_type": {**about, "name": f"{about['name']}-{number}"}}


# The module of an adapter's tests, the arguments of its `answers`, and how a row is made another.
CASES: dict[str, tuple[str, tuple[str, ...], Callable[[Any, int], Any] | None]] = {
    "azure": ("azure.test_retail", (), _renamed(armRegionName=_numbered)),
    "gcp": ("gcp.test_fuzz", (), None),
    "gpuhunt: cloudrift": ("test_gpuhunt_tail", ("cloudrift",), _renamed(name=_numbered)),
    "gpuhunt: crusoe": ("test_gpuhunt_tail", ("crusoe",), _renamed(product_name=_numbered)),
    "gpuhunt: daytona": ("test_gpuhunt_tail", ("daytona",), None),
    "gpuhunt: hotaisle": ("test_gpuhunt_tail", ("hotaisle",), _larger),
    "gpuhunt: jarvislabs": ("test_gpuhunt_tail", ("jarvislabs",), None),
    "gpuhunt: lium": ("test_gpuhunt_tail", ("lium",), _tail_row),
    "gpuhunt: seeweb": ("test_gpuhunt_tail", ("seeweb",), _tail_row),
    "gpuhunt: vultr": ("test_gpuhunt_tail", ("vultr",), _tail_row),
    "gpuhunt: digitalocean": ("test_gpuhunt_tail", ("digitalocean",), _tail_row),
    "hyperstack": ("test_hyperstack", (), _more_flavors),
    "lambda": ("test_lambda_cloud", (), _lambda_row),
    "oci": ("test_oci", ("shapes", "10"), None),
    "ovh": ("test_ovh", (), _renamed(planCode=lambda code, number: f"{number}-{code}")),
    "prime_intellect": ("test_prime_intellect", (), _renamed(cloudId=_numbered)),
    "runpod": ("test_runpod", (), None),
    "scaleway": ("test_scaleway", (), _other_instance),
    "sfcompute": ("test_sfcompute", (), None),
    "shadeform": ("test_shadeform", (), _renamed(cloud_instance_type=_numbered)),
    "vast": ("test_vast", (), _renamed(id=_numbered)),
    "verda": ("test_verda", (), _renamed(instance_type=_numbered)),
    "vultr": ("test_vultr", (), _renamed(id=_numbered)),
}


def answers_of(name: str) -> tuple[JsonAnswers, Callable[[Any, int], Any] | None]:
    """The arguments of `case`."""
    module, arguments, again = CASES[name]
    return import_module(f"tests.providers.{module}").answers(*arguments), again


def cases() -> Iterator[tuple[str, HostileCase]]:
    for name in CASES:
        yield name, case(*answers_of(name))


@dataclass(frozen=True)
class HostileOutcome:
    """What came of one hostile answer. ``faults``: what does not hold."""

    words: str
    faults: tuple[str, ...]


def outcome(of: HostileCase, kind: str, folder: Path) -> HostileOutcome:
    clock = ManualClock(NOW)
    store = open_store(f"sqlite:///{folder / f'{kind}.db'}", clock=clock)
    try:
        with of.served() as (url, answer):
            answer(of.good)
            first = _poll(of, url, store, clock)
            known = {offer.id: offer for offer in store.offers()}
            assert known, f"the good answer brings nothing: {first.error}"
            later = {"set back": timedelta(days=-3), "far ahead": timedelta(days=4000)}.get(kind, timedelta(minutes=10))
            clock = ManualClock(NOW + later)
            answer(of.hostile[kind])
            result = _poll(of, url, store, clock)
        return _judged(known, store.offers(), result, clock.now())
    finally:
        store.close()


def believed_and_suspicious(of: HostileCase, folder: Path, judge: Suspicion) -> tuple[list[Offer], list[Offer]]:
    """Of the good answer, polled into a new store."""
    clock = ManualClock(NOW)
    store = open_store(f"sqlite:///{folder / 'good.db'}", clock=clock)
    with of.served() as (url, answer):
        answer(of.good)
        _poll(of, url, store, clock, judge)
    offers = store.offers()
    store.close()
    return [offer for offer in offers if not offer.doubt], [offer for offer in offers if offer.doubt]


def _poll(of: HostileCase, url: str, store: Store, clock: ManualClock, judged: Suspicion | None = None) -> PollResult:
    judged = judged or Suspicion()
    session = PollSession(PollRequest("adapter", lambda: of.make(url, clock), timeout=60, judge=judged), clock)
    session.listen()
    return session.record(store)


def _judged(known: dict[str, Offer], offers: list[Offer], result: PollResult, now: datetime) -> HostileOutcome:
    current = {offer.id: offer for offer in offers}
    # A kind of machine with nothing to compare it with is in doubt from its first price on.
    suspicious = [offer for offer in offers if offer.doubt and (offer.id not in known or not known[offer.id].doubt)]
    faults = [f"{name} is gone" for name in known if name not in current]
    faults += [f"{o.id} costs {o.price} now" for o in offers if o.id in known and o.price != known[o.id].price]
    faults += [f"{offer.id} is of the future" for offer in offers if offer.as_of > now]
    faults += [f"{offer.id} may be launched" for offer in offers if offer.doubt and not is_refused(offer, now)]
    # What is told again has a later date, if it is not of a list that has one of its own.
    same = [offer for offer in offers if offer.id in known and offer not in suspicious]
    again = [offer for offer in same if offer.reference or offer.as_of > known[offer.id].as_of]
    if not result.failed and not suspicious and len(again) < len(known) and result.finished > NOW:
        faults.append(f"{len(known) - len(again)} offers were not told again, and nothing is marked")
    words = f"{result.status}, {len(suspicious)} in doubt" if suspicious else f"{result.status}"
    return HostileOutcome(words, tuple(faults))


def is_refused(offer: Offer, now: datetime) -> bool:
    """Whether a job that wants exactly this machine is refused it because of the doubt alone."""
    wanted = MachineRequest(accelerator=offer.accelerator, count=offer.count)
    job = PreparedJob.of(Job(name="any", run="true", resources=(wanted,)), CONDITIONS, now, {})
    there = replace(offer, engine="skypilot", as_of=now, availability=Availability.AVAILABLE)
    return getattr(fit(there, job), "reason", None) is Reason.SUSPECT_OFFER
