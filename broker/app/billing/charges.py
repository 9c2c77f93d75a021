"""Provider charges: read or import them, compare them with metered cost, adjust the ledger, and send notices of large
differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from broker.app.alerts.routes import recipients
from broker.app.billing.charges_file import read_charges
from broker.app.billing.focus_charges import read_focus_charges
from broker.app.results.charges import ChargesResult, SkippedRows
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, InvalidInput, MissingExtra, NoLogin, UnknownName
from broker.core.events.views import AttemptView, JobView
from broker.core.market.offers import MoneyKind
from broker.core.notices import Notice, Severity
from broker.core.ports import HasCharges
from broker.core.values.money import Money
from broker.finops.focus.months import BillingMonth
from broker.ledger.entries import Entry
from broker.reconciler.admission.records import attempt_key
from broker.reconciler.settlement.charges import (
    BILLED,
    LONGEST_AFTER,
    Charged,
    Comparison,
    ComparisonState,
    adjustment,
    compare,
    compared_as_placed,
    is_billed,
    is_late,
)
from broker.reconciler.sweep import job_of
from broker.store.ledger.charges import API, ChargeScope

if TYPE_CHECKING:
    from broker.core.market.capacity import Charge
    from broker.ledger.journal import PaidAttempt
    from broker.store.jobs.machine_time import MachineTime
    from broker.store.jobs.reading import StoreReading

_FOR_EVER = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Billed:
    """Comparisons, oldest attempt first. ``for_others``: charges that belong to no attempt (USD, by provider).
    ``skipped``: rows of the export that are left out; ``superseded``: its files that are, as those of earlier runs."""

    rows: tuple[Comparison, ...]
    for_others: Mapping[str, Money]
    skipped: Sequence[SkippedRows] = ()
    superseded: Sequence[str] = ()


def billed(broker: Broker, since: datetime | None = None, until: datetime | None = None) -> Billed:
    """Every attempt paid in cash whose machine was up within the half-open time (UTC; None: no bound). Amounts are
    those of the whole attempt. Changes nothing."""
    now = broker.clock.now()
    with broker.store.reading() as look:
        paid, there = list(look.paid_attempts(since, until, BILLED)), _still_there(look, until)
        charges = _charges(look, [*(one.since for one in paid), *(one.since for one in there)], since)
        rows = _comparisons(look, paid, there, Charged(charges, now), now)
        within = [c for c in charges if (until is None or c.starts < until) and (since is None or c.ends > since)]
        ends = {row.key: row.gone_at for row in rows}
        others = _machine_time_of(look, [charge for charge in within if charge.key not in ends])
        ends |= {attempt.key: attempt.gone_at for _, attempt in _attempts(look, others)}
    return Billed(tuple(rows), Charged(within, now).for_others(ends))


def _still_there(look: StoreReading, until: datetime | None) -> list[MachineTime]:
    """Machines that came up before ``until`` (UTC; None: at any time) and are not known to have ended."""
    return [one for one in look.machine_time(since=_FOR_EVER) if until is None or one.since < until]


def _comparisons(
    look: StoreReading, paid: Iterable[PaidAttempt], times: Iterable[MachineTime], charged: Charged, now: datetime
) -> list[Comparison]:
    """The attempts that were ``paid``, and those with this machine time, oldest first. For attempts that cost what was
    quoted, the store's sums are sufficient; only the others are read job by job."""
    rows: list[tuple[datetime, str, int, Comparison]] = []
    rest, unlike = {(one.job_id, one.attempt): one for one in times}, set[tuple[str, int]]()
    for one in paid:
        found = compared_as_placed(one, attempt_key(one.job_id, one.attempt), charged)
        if found is None:
            unlike.add((one.job_id, one.attempt))
        else:
            rows.append((one.since, one.job_id, one.attempt, found))
    of_jobs = look.machine_time(job_ids=sorted({job_id for job_id, _ in unlike})) if unlike else ()
    rest |= {key: one for one in of_jobs if (key := (one.job_id, one.attempt)) in unlike}
    of_job: dict[str, list[tuple[JobView, AttemptView]]] = {}
    for view, attempt in _attempts(look, rest.values()):
        of_job.setdefault(view.id, []).append((view, attempt))
    for job_id, entries in look.entries_of(sorted(of_job)):
        for view, attempt in of_job[job_id]:
            found = compare(view, attempt, entries, charged, now)
            rows.append((attempt.up_since or now, job_id, attempt.number, found))
    return [row[-1] for row in sorted(rows, key=itemgetter(0, 1, 2))]


def billed_by_file(broker: Broker, file: Path) -> Billed:
    """The attempts that a FOCUS export names, and those that it should contain: of its providers, up within its time.
    Changes nothing. Raises as `read_focus_charges`."""
    read = read_focus_charges(file)
    charges = read.charges
    if not charges:
        others = "".join(f"; {one.rows} rows {one.reason} ({one.samples[0]}, …)" for one in read.skipped)
        raise InvalidInput(f"has no charges in USD{others}", where=str(file))
    since, until = min(one.starts for one in charges), max(one.ends for one in charges)
    providers, now = {one.provider for one in charges}, broker.clock.now()
    with broker.store.reading() as look:
        paid = [one for one in look.paid_attempts(since, until, BILLED) if one.provider in providers]
        known = {(one.job_id, one.attempt) for one in paid}
        there = [one for one in _still_there(look, until) if one.provider in providers]
        there += [one for one in _machine_time_of(look, charges) if (one.job_id, one.attempt) not in known]
        charged = Charged(charges, now)
        rows = _comparisons(look, paid, there, charged, now)
    rest = charged.for_others({row.key: row.gone_at for row in rows})
    return Billed(tuple(rows), rest, read.skipped, [str(one) for one in read.superseded])


def fetch(broker: Broker, provider: str = "") -> ChargesResult:
    """Ask providers for their charges since the first attempt that is not compared yet, and apply them (`settle_up`).
    Idempotent.

    Only providers with outstanding charges are asked; AWS bills each request at $0.01. Raises `UnknownName` for an
    unknown provider, `InvalidInput` for a named one that reports no charges or has invalid settings, and
    `StoreProblem`.
    """
    if provider and provider not in broker.registries.providers:
        raise UnknownName("provider", provider, broker.registries.providers)
    changed: dict[str, int] = {}
    replaced: dict[str, int] = {}
    trouble: dict[str, str] = {}
    without_login: list[str] = []
    awaited = _awaited(broker, provider)
    for name, since in awaited.items():
        try:
            source = broker.provider(name)
            if not isinstance(source, HasCharges):
                if provider:
                    raise InvalidInput(f"{name} does not report its charges", hint=_IMPORT)
                continue
            told = list(source.charges(since))  # outside of the transaction, because it is slow
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
            found = broker.store.charges.record(told, source=API, at=now, whole=[ChargeScope(name, since)])
            changed[name], replaced[name] = found.changed.get(name, 0), found.replaced.get(name, 0)
    adjusted, notices = settle_up(broker, min(awaited.values(), default=None))
    done = {"changed": changed, "replaced": replaced, "adjusted": adjusted, "trouble": trouble}
    return ChargesResult.from_parts(**done, alerts=[one.title for one in notices], without_login=without_login)


_IMPORT = "import its bill: gpubroker report charges import FILE"


def import_file(broker: Broker, file: Path, provider: str = "", *, replace: bool = False) -> ChargesResult:
    """Import charges from a CSV file (`broker.app.billing.charges_file`), and apply them (`settle_up`). Idempotent.
    With ``replace``, they replace earlier ones of the same provider and account for the time that they cover; without
    it, only estimated ones: the file may be another part of the bill.

    Raises `UnknownName` for an unknown provider, and `InvalidInput` with every invalid line (nothing is stored then),
    or for a provider whose charges are read from its API, because they would count twice.
    """
    charges = read_charges(file, provider)
    names = {one.provider for one in charges}
    known = {*broker.registries.providers, *_awaited(broker, "")}
    for name in sorted(names):
        if name not in known:
            raise UnknownName("provider", name, known)
        if API in broker.store.charges.sources(name):
            raise InvalidInput(
                f"charges of {name} are read from its API already; from a file they would count twice", where=str(file)
            )
    now = broker.clock.now()
    try:
        found = broker.store.charges.record(charges, source=file.name, at=now, whole=_scopes(charges), replace=replace)
    except InvalidInput as error:
        error.where = str(file)
        raise
    adjusted, notices = settle_up(broker, min(one.starts for one in charges))
    changed, replaced = ({name: by.get(name, 0) for name in sorted(names)} for by in (found.changed, found.replaced))
    done = {"changed": changed, "replaced": replaced, "adjusted": adjusted, "unknown": _unknown(broker, charges)}
    return ChargesResult.from_parts(**done, alerts=[one.title for one in notices])


def _scopes(charges: Iterable[Charge]) -> list[ChargeScope]:
    """What a file covers of each provider and account: from its first charge until the end of its last, but not beyond
    the month (UTC) in which the last one starts, because bills are monthly and a charge may run into the next one."""
    of: dict[tuple[str, str], list[Charge]] = {}
    for one in charges:
        of.setdefault((one.provider, one.account), []).append(one)
    return [
        ChargeScope(
            provider,
            min(one.starts for one in mine),
            min(max(one.ends for one in mine), BillingMonth.of(max(one.starts for one in mine)).end),
            account,
        )
        for (provider, account), mine in of.items()
    ]


def _unknown(broker: Broker, charges: Iterable[Charge]) -> list[str]:
    """The keys of no attempt that can have such a charge: perhaps misspelled, or of another store."""
    keys, known = {one.key for one in charges if one.key}, set()
    with broker.store.reading() as look:
        for view in look.views(sorted({job_of(key) for key in keys})):
            known |= {attempt_key(view.id, number + 1) for number in range(view.attempt_count)}
        unreadable = {one.job_id for one in look.unreadable}
        ends = {attempt.key: attempt.gone_at for _, attempt in _attempts(look, _machine_time_of(look, charges))}
    known |= {key for key in keys if job_of(key) in unreadable}  # such a job may have the attempt
    return sorted((keys - known) | {one.key for one in charges if is_late(one, ends.get(one.key))})


def settle_up(broker: Broker, since: datetime | None = None) -> tuple[list[Comparison], list[Notice]]:
    """Adjust the ledger to the charges, attempt by attempt, and queue notices of differences over the threshold.
    Idempotent, also from several processes. Returns the adjusted attempts and the notices.

    Covers attempts with charges, or with adjustments to charges that are gone, since the start of the oldest month
    whose bills may still change, or since ``since`` (UTC) if that is earlier."""
    now = broker.clock.now()
    adjusted, compared = [], []
    begin = BillingMonth.of(min(since or now, now - LONGEST_AFTER)).start
    with broker.store.reading() as look:
        times = {(one.job_id, one.attempt): one for one in _machine_time_of(look, look.charges(since=begin))}
        adjusted_before = {(one.job_id, one.attempt) for one in look.paid_attempts(begin, None, BILLED) if one.adjusted}
        rest = look.machine_time(job_ids=sorted({job_id for job_id, _ in adjusted_before - times.keys()}))
        times |= {key: one for one in rest if (key := (one.job_id, one.attempt)) in adjusted_before}
        pairs = _attempts(look, times.values())
        charged = Charged(_charges(look, _begins(pairs), begin), now)
        looked = [_brought(look, view, attempt, charged, now) for view, attempt in pairs]
    for (view, attempt), (found, wanted) in zip(pairs, looked, strict=True):
        if wanted:
            with broker.store.writing() as tx:  # compared again, because charges or entries may have changed meanwhile
                charged = Charged(_charges(tx, [attempt.up_since], now, found.provider), now)
                found, wanted = _brought(tx, view, attempt, charged, now)
                tx.post(wanted)
        compared.append(found)
        if wanted:
            adjusted.append(found)
    over = Threshold(broker.settings.charges.alert_over, broker.settings.charges.alert_above)
    notices = [*(n for one in compared if (n := _about_attempt(one, over))), *_about_providers(compared, over)]
    for notice in notices:
        broker.store.outbox.add(notice, recipients(broker.settings, notice), now)
    return adjusted, notices


def _brought(
    look: StoreReading, view: JobView, attempt: AttemptView, charged: Charged, now: datetime
) -> tuple[Comparison, Sequence[Entry]]:
    """The comparison after the adjustment, and the entries of the adjustment, if any is needed."""
    entries = look.entries(view.id)
    wanted = adjustment(view, attempt, compare(view, attempt, entries, charged, now), entries, now)
    return compare(view, attempt, [*entries, *wanted], charged, now), wanted


def _attempts(look: StoreReading, times: Iterable[MachineTime]) -> list[tuple[JobView, AttemptView]]:
    """The attempts with this machine time that a provider charges for, with their jobs, in the same order."""
    wanted = [one for one in times if one.money is MoneyKind.CASH]
    views = {view.id: view for view in look.views(list({one.job_id for one in wanted}))}
    found = []
    for one in wanted:
        view = views.get(one.job_id)  # None: this version cannot read it
        attempts = view.attempts if view is not None else ()
        found += [(view, a) for a in attempts if view is not None and a.number == one.attempt and is_billed(a)]
    return found


def _machine_time_of(look: StoreReading, charges: Iterable[Charge]) -> Sequence[MachineTime]:
    """The machine time of the attempts that these charges name."""
    keys = {one.key for one in charges if one.key}
    times = look.machine_time(job_ids=list({job_of(key) for key in keys}))
    return [one for one in times if attempt_key(one.job_id, one.attempt) in keys]


def _charges(
    look: StoreReading, begins: Iterable[datetime | None], since: datetime | None, provider: str | None = None
) -> Sequence[Charge]:
    """The charges since ``since`` (UTC; None: all), or since an earlier time at which one of the machines came up."""
    if since is None:
        return look.charges(provider)
    # Credits may be dated before the machine was up.
    return look.charges(provider, since=min([since, *(at for at in begins if at is not None)]) - LONGEST_AFTER)


def _begins(pairs: Iterable[tuple[JobView, AttemptView]]) -> list[datetime | None]:
    return [attempt.up_since for _, attempt in pairs]


def _awaited(broker: Broker, provider: str) -> Mapping[str, datetime]:
    """The providers with charges that are outstanding or may still change, each with the time (UTC) to ask from."""
    now = broker.clock.now()
    earliest: dict[str, datetime] = {}
    with broker.store.reading() as look:
        times = look.machine_time(since=now - LONGEST_AFTER)
        pairs = _attempts(look, [one for one in times if provider in ("", one.provider)])
        charged = Charged(_charges(look, _begins(pairs), now), now)
        for view, attempt in pairs:
            name, up = attempt.placement.offer.provider, attempt.up_since or now
            found = compare(view, attempt, (), charged, now)
            if found.standing is not ComparisonState.COMPARED or found.estimated:
                earliest[name] = min(up, earliest.get(name, up))
    return {name: datetime.combine(up.astimezone(UTC), time(), UTC) for name, up in earliest.items()}


@dataclass(frozen=True, slots=True)
class Threshold:
    """The difference between charged and metered cost that causes a notice: it must exceed both the ``share`` of the
    metered cost and the ``amount`` (USD)."""

    share: float
    amount: Money

    def passed(self, metered: Money, difference: Money) -> bool:
        return abs(difference) > self.amount and abs(difference) > metered.scaled(self.share)


def _about_attempt(one: Comparison, over: Threshold) -> Notice | None:
    if one.difference is None or not over.passed(one.metered, one.difference):
        return None
    title = f"{one.provider} charged {one.billed} for {one.key}; metered: {one.metered}"
    return Notice(f"charges/{one.key}/{one.billed}", title, _BODY, Severity.WARNING)


_BODY = "The ledger was adjusted to the charge. See `gpubroker report billed`."


def _about_providers(compared: Sequence[Comparison], over: Threshold) -> Iterator[Notice]:
    """Notices of the sums of differences, one for each provider and month."""
    sums: dict[tuple[str, str], tuple[Money, Money]] = {}
    for one in compared:
        if one.difference is not None and one.gone_at is not None:
            slot = (one.provider, f"{one.gone_at:%Y-%m}")
            metered, difference = sums.get(slot, (Money.ZERO, Money.ZERO))
            sums[slot] = (metered + one.metered, difference + one.difference)
    for (provider, month), (metered, difference) in sorted(sums.items()):
        if over.passed(metered, difference):
            title = f"{provider} charged {metered + difference} in {month} (UTC); metered: {metered}"
            yield Notice(f"charges/{provider}/{month}", title, _BODY, Severity.WARNING)
