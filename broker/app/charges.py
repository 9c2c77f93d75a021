"""Quoted against billed: what providers charged is read or imported, compared with what was metered, made up for in the
ledger, and told where the two are far apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from broker.app.charges_file import read_charges
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, InvalidInput, MissingExtra, NoLogin, UnknownName
from broker.core.money import Money
from broker.core.notices import Notice, Severity
from broker.core.ports import HasCharges
from broker.core.views import AttemptView, JobView
from broker.launch.charges import Charged, Comparison, Standing, adjustment, compare, is_billed
from broker.ledger.entries import Entry
from broker.store.charges import API

if TYPE_CHECKING:
    from broker.core.capacity import Charge
    from broker.store.journal import StoreReading

_FURTHEST_BACK = timedelta(days=62)  # after its end nothing more is asked for an attempt: bills are closed by then


@dataclass(frozen=True, slots=True)
class Billed:
    """Comparisons, oldest attempt first, and what providers charged for none of our attempts (USD, by provider)."""

    rows: tuple[Comparison, ...]
    for_others: Mapping[str, Money]


@dataclass(frozen=True, slots=True)
class Recorded:
    """What came of reading charges: how many were new or changed, by provider; the attempts whose money was adjusted;
    the differences over the threshold; providers that could not be asked, each with why; those without a login; and
    keys that no attempt of this store has."""

    changed: Mapping[str, int]
    adjusted: tuple[Comparison, ...]
    alerts: tuple[Notice, ...]
    trouble: Mapping[str, str]
    without_login: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def billed(broker: Broker, since: datetime | None = None, until: datetime | None = None) -> Billed:
    """Every attempt that costs cash and whose machine was up in the half-open time (UTC; None: no bound). Amounts are
    of the whole attempt. Changes nothing."""
    now = broker.clock.now()
    charges = broker.store.charges.all()
    charged = Charged(charges, now)
    with broker.store.reading() as look:
        pairs = list(_attempts(look))
        keys = {attempt.key for _, attempt in pairs}
        chosen = [pair for pair in pairs if _touches(pair[1], since, until, now)]
        rows = [compare(view, attempt, look.entries(view.id), charged, now) for view, attempt in chosen]
    within = (one for one in charges if (until is None or one.starts < until) and (since is None or one.ends > since))
    return Billed(tuple(rows), Charged(within, now).for_others(keys))


def fetch(broker: Broker, provider: str = "") -> Recorded:
    """Ask providers what they charged since the first attempt that is not compared yet, and act on it (`settle_up`).

    Only those are asked for which something is awaited; AWS bills each question at $0.01. Raises `UnknownName` for a
    provider that there is none of, `InvalidInput` for a named one that does not tell or whose settings are wrong, and
    `StoreProblem`.
    """
    if provider and provider not in broker.registries.providers:
        raise UnknownName("provider", provider, broker.registries.providers)
    changed: dict[str, int] = {}
    trouble: dict[str, str] = {}
    without_login: list[str] = []
    for name, since in _awaited(broker, provider).items():
        try:
            source = broker.provider(name)
            if not isinstance(source, HasCharges):
                if provider:
                    raise InvalidInput(f"{name} does not tell what it charged", hint=_IMPORT)
                continue
            told = list(source.charges(since))  # nothing slow inside a transaction
        except MissingExtra:
            continue
        except NoLogin:
            without_login.append(name)
        except BrokerError as error:
            if provider and isinstance(error, InvalidInput):
                raise
            trouble[name] = str(error)
        else:
            now = broker.clock.now()
            changed[name] = broker.store.charges.record(told, source=API, at=now, whole_of=(name, since))
    adjusted, notices = settle_up(broker)
    return Recorded(changed, tuple(adjusted), tuple(notices), trouble, tuple(without_login))


_IMPORT = "import its bill: gpubroker report charges import FILE"


def import_file(broker: Broker, file: Path, provider: str = "") -> Recorded:
    """Read charges from a CSV file (`broker.app.charges_file`), and act on them. The same file again changes nothing.

    Raises `InvalidInput` with every line that is wrong (then nothing is kept), and for a provider whose charges come
    from its API: they would count twice.
    """
    charges = read_charges(file, provider)
    names = {one.provider for one in charges}
    known = {*broker.registries.providers, *_awaited(broker, "")}
    for name in sorted(names):
        if name not in known:
            raise UnknownName("provider", name, known)
        if API in broker.store.charges.sources(name):
            raise InvalidInput(
                f"what {name} charged is read from its API already; from a file it would count twice", where=str(file)
            )
    now = broker.clock.now()
    changed = {
        name: broker.store.charges.record([one for one in charges if one.provider == name], source=file.name, at=now)
        for name in sorted(names)
    }
    adjusted, notices = settle_up(broker)
    return Recorded(changed, tuple(adjusted), tuple(notices), {}, unknown=_unknown(broker, charges))


def _unknown(broker: Broker, charges: Iterable[Charge]) -> tuple[str, ...]:
    """The keys that no attempt has: misspelt perhaps, or of another store."""
    keys, known = {one.key for one in charges if one.key}, set()
    with broker.store.reading() as look:
        for job_id in {key.rpartition("-")[0] for key in keys}:
            view = look.job(job_id)
            known |= {attempt.key for attempt in view.attempts} if view else set()
    return tuple(sorted(keys - known))


def settle_up(broker: Broker) -> tuple[list[Comparison], list[Notice]]:
    """Bring the ledger to what was charged, attempt by attempt, and put notices of differences over the threshold on
    their way, each once. May be repeated, and by any number of processes. Returns what was adjusted and the notices."""
    now = broker.clock.now()
    adjusted, compared = [], []
    with broker.store.reading() as look:
        charged = Charged(look.charges(), now)
        pairs = [(v, a) for v, a in _attempts(look) if charged.of(a.placement.offer.provider, a.key)]
        looked = [_brought(look, view, attempt, charged, now) for view, attempt in pairs]
    for (view, attempt), (found, wanted) in zip(pairs, looked, strict=True):
        if wanted:
            with broker.store.writing() as tx:  # by now both may have changed: what is posted follows what is on record
                charged = Charged(tx.charges(found.provider), now)
                found, wanted = _brought(tx, view, attempt, charged, now)
                tx.post(wanted)
        compared.append(found)
        if wanted:
            adjusted.append(found)
    targets = tuple(broker.settings.notify)
    over = Threshold(broker.settings.charges.alert_over, broker.settings.charges.alert_above)
    notices = [*(n for one in compared if (n := _about_attempt(one, over))), *_about_providers(compared, over)]
    for notice in notices:
        broker.store.outbox.add(notice, targets, now)
    return adjusted, notices


def _brought(
    look: StoreReading, view: JobView, attempt: AttemptView, charged: Charged, now: datetime
) -> tuple[Comparison, Sequence[Entry]]:
    """The entries that bring the ledger to what was charged, if any, and the comparison once they are posted."""
    entries = look.entries(view.id)
    wanted = adjustment(view, attempt, compare(view, attempt, entries, charged, now), entries, now)
    return compare(view, attempt, [*entries, *wanted], charged, now), wanted


def _attempts(look: StoreReading) -> Iterator[tuple[JobView, AttemptView]]:
    """Every attempt that a provider charges for, oldest job first."""
    for view in reversed(look.jobs()):
        for attempt in view.attempts:
            if is_billed(attempt):
                yield view, attempt


def _touches(attempt: AttemptView, since: datetime | None, until: datetime | None, now: datetime) -> bool:
    start = attempt.up_since or now
    end = attempt.gone_at if attempt.gone and attempt.gone_at else now
    return (until is None or start < until) and (since is None or end >= since)


def _awaited(broker: Broker, provider: str) -> Mapping[str, datetime]:
    """The providers whose charges are awaited, or may still change, and from when on."""
    now = broker.clock.now()
    charged = Charged(broker.store.charges.all(), now)
    earliest: dict[str, datetime] = {}
    with broker.store.reading() as look:
        for view, attempt in _attempts(look):
            name, up = attempt.placement.offer.provider, attempt.up_since or now
            if (provider and name != provider) or (attempt.gone_at or now) < now - _FURTHEST_BACK:
                continue
            found = compare(view, attempt, (), charged, now)
            if found.standing is not Standing.COMPARED or found.estimated:
                earliest[name] = min(up, earliest.get(name, up))
    return {name: datetime.combine(up.astimezone(UTC), time(), UTC) for name, up in earliest.items()}


# --- telling --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Threshold:
    """How far charges may be from what was metered: both a ``share`` of it and an ``amount`` must be passed."""

    share: float
    amount: Money

    def passed(self, metered: Money, difference: Money) -> bool:
        return abs(difference) > self.amount and abs(difference) > metered.scaled(self.share)


def _about_attempt(one: Comparison, over: Threshold) -> Notice | None:
    if one.difference is None or not over.passed(one.metered, one.difference):
        return None
    title = f"{one.provider} charged {one.billed} for {one.key}; metered were {one.metered}"
    return Notice(f"charges/{one.key}/{one.billed}", title, _BODY, Severity.WARNING)


_BODY = "The ledger was brought to what was charged. See `gpubroker report billed`."


def _about_providers(compared: Sequence[Comparison], over: Threshold) -> Iterator[Notice]:
    """Many small differences make a large one: by provider and month, told once each."""
    sums: dict[tuple[str, str], tuple[Money, Money]] = {}
    for one in compared:
        if one.difference is not None and one.gone_at is not None:
            slot = (one.provider, f"{one.gone_at:%Y-%m}")
            metered, difference = sums.get(slot, (Money.ZERO, Money.ZERO))
            sums[slot] = (metered + one.metered, difference + one.difference)
    for (provider, month), (metered, difference) in sorted(sums.items()):
        if over.passed(metered, difference):
            title = f"{provider} charged {metered + difference} in {month}; metered were {metered}"
            yield Notice(f"charges/{provider}/{month}", title, _BODY, Severity.WARNING)
