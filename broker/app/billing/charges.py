"""Provider charges: read or import them, compare them with metered cost, adjust the ledger, and send notices of large
differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from broker.app.alerts.routes import recipients
from broker.app.billing.charge_documents import ChargesResult, SkippedRows
from broker.app.billing.charges_file import ExchangeRate, read_charges
from broker.app.billing.focus_charges import is_focus_export, read_focus_charges
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, InvalidInput, MissingExtra, NoLogin, UnknownName
from broker.core.events.views import AttemptView, JobView
from broker.core.market.offers import MoneyKind
from broker.core.notices import Notice, Severity
from broker.core.ports import HasCharges
from broker.core.values.money import Money
from broker.core.values.provider_names import NAMES, provider_name
from broker.ledger.entries import Entry
from broker.ledger.finops.focus.months import BillingMonth
from broker.reconciler.admission.records import attempt_key, job_of
from broker.reconciler.settlement.charges import (
    BILLED,
    LONGEST_AFTER,
    ChargeIndex,
    Comparison,
    ComparisonState,
    adjustment,
    compare,
    compare_from_sums,
    is_billed,
    is_late,
)
from broker.store.ledger.charges import API, ChargeScope

if TYPE_CHECKING:
    from broker.core.market.capacity import Charge
    from broker.ledger.journal import PaidAttempt
    from broker.store.jobs.reader import StoreReader
    from broker.store.ledger.machine_time import MachineTime
from broker.app.billing.charge_documents import BilledAttempts

_FAR_FUTURE = datetime(9999, 1, 1, tzinfo=UTC)


def billed_attempts(broker: Broker, since: datetime | None = None, until: datetime | None = None) -> BilledAttempts:
    """Every attempt paid in cash whose machine was up within the half-open time (UTC; None: no bound). Amounts are
    those of the whole attempt. Changes nothing."""
    now = broker.clock.now()
    with broker.store.reading() as reader:
        paid_attempts, running_machines = list(reader.paid_attempts(since, until, BILLED)), _machines_up(reader, until)
        charges = _charges(
            reader,
            [*(machine.since for machine in paid_attempts), *(machine.since for machine in running_machines)],
            since,
        )
        rows = _comparisons(reader, paid_attempts, running_machines, ChargeIndex(charges, now), now)
        period_charges = [
            c for c in charges if (until is None or c.starts < until) and (since is None or c.ends > since)
        ]
        ends = {row.key: row.gone_at for row in rows}
        charged_times = _charged_machine_time(reader, [charge for charge in period_charges if charge.key not in ends])
        ends |= {attempt.key: attempt.gone_at for _, attempt in _attempts(reader, charged_times)}
    sources = sorted({charge.about["source"] for charge in period_charges})
    return BilledAttempts(tuple(rows), ChargeIndex(period_charges, now).for_others(ends), sources=sources)


def _machines_up(reader: StoreReader, until: datetime | None) -> list[MachineTime]:
    """Machines that came up before ``until`` (UTC; None: at any time) and are not known to have ended."""
    return [machine for machine in reader.machine_time(since=_FAR_FUTURE) if until is None or machine.since < until]


def _comparisons(
    reader: StoreReader,
    paid_attempts: Iterable[PaidAttempt],
    times: Iterable[MachineTime],
    charged: ChargeIndex,
    now: datetime,
) -> list[Comparison]:
    """The attempts that were ``paid_attempts``, and those with this machine time, oldest first. For attempts that cost
    what was quoted, the store's sums are sufficient; only the others are read job by job."""
    rows: list[tuple[datetime, str, int, Comparison]] = []
    remaining_times, differing = {(entry.job_id, entry.attempt): entry for entry in times}, set[tuple[str, int]]()
    for entry in paid_attempts:
        comparison = compare_from_sums(entry, attempt_key(entry.job_id, entry.attempt), charged)
        if comparison is None:
            differing.add((entry.job_id, entry.attempt))
        else:
            rows.append((entry.since, entry.job_id, entry.attempt, comparison))
    job_times = reader.machine_time(job_ids=sorted({job_id for job_id, _ in differing})) if differing else ()
    remaining_times |= {key: entry for entry in job_times if (key := (entry.job_id, entry.attempt)) in differing}
    attempts_by_job: dict[str, list[tuple[JobView, AttemptView]]] = {}
    for view, attempt in _attempts(reader, remaining_times.values()):
        attempts_by_job.setdefault(view.id, []).append((view, attempt))
    for job_id, entries in reader.entries_of(sorted(attempts_by_job)):
        for view, attempt in attempts_by_job[job_id]:
            comparison = compare(view, attempt, entries, charged, now)
            rows.append((attempt.up_since or now, job_id, attempt.number, comparison))
    return [row[-1] for row in sorted(rows, key=itemgetter(0, 1, 2))]


def compare_export(broker: Broker, file: Path) -> BilledAttempts:
    """The attempts that a FOCUS export names, and those that it should contain: of its providers, up within its time.
    Changes nothing. Raises as `read_focus_charges`."""
    export = read_focus_charges(file)
    charges = export.charges
    if not charges:
        skipped_text = "".join(f"; {item.rows} rows {item.reason} ({item.samples[0]}, …)" for item in export.skipped)
        raise InvalidInput(f"has no charges in USD{skipped_text}", where=str(file))
    since, until = min(item.starts for item in charges), max(item.ends for item in charges)
    providers, now = {item.provider for item in charges}, broker.clock.now()
    with broker.store.reading() as reader:
        paid_attempts = [item for item in reader.paid_attempts(since, until, BILLED) if item.provider in providers]
        paid_keys = {(item.job_id, item.attempt) for item in paid_attempts}
        machine_times = [item for item in _machines_up(reader, until) if item.provider in providers]
        machine_times += [
            item for item in _charged_machine_time(reader, charges) if (item.job_id, item.attempt) not in paid_keys
        ]
        charged = ChargeIndex(charges, now)
        rows = _comparisons(reader, paid_attempts, machine_times, charged, now)
    for_others = charged.for_others({row.key: row.gone_at for row in rows})
    return BilledAttempts(tuple(rows), for_others, export.skipped, [str(item) for item in export.superseded])


def fetch(broker: Broker, provider: str = "") -> ChargesResult:
    """Ask providers for their charges since the first attempt that is not compared yet, and apply them
    (`apply_charges`). Idempotent.

    Only providers with outstanding charges are asked; AWS bills each request at $0.01. Raises `UnknownName` for an
    unknown provider, `InvalidInput` for a named one that reports no charges or has invalid settings, and
    `StoreProblem`.
    """
    provider = provider_name(provider)
    if provider and provider not in broker.registries.providers:
        raise UnknownName("provider", provider, broker.registries.providers)
    changed_counts: dict[str, int] = {}
    replaced_counts: dict[str, int] = {}
    trouble: dict[str, str] = {}
    without_login: list[str] = []
    outstanding = _outstanding_providers(broker, provider)
    for name, since in outstanding.items():
        try:
            source = broker.provider(name)
            if not isinstance(source, HasCharges):
                if provider:
                    raise InvalidInput(f"{name} does not report its charges", hint=_IMPORT_HINT)
                continue
            provider_charges = list(source.charges(since))  # outside of the transaction, because it is slow
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
            record_result = broker.store.charges.record(
                provider_charges, source=API, at=now, whole=[ChargeScope(name, since)]
            )
            changed_counts[name], replaced_counts[name] = (
                record_result.changed.get(name, 0),
                record_result.replaced.get(name, 0),
            )
    adjusted_attempts, notices = apply_charges(broker, min(outstanding.values(), default=None))
    done = {"changed": changed_counts, "replaced": replaced_counts, "adjusted": adjusted_attempts, "trouble": trouble}
    return ChargesResult.from_parts(**done, alerts=[notice.title for notice in notices], without_login=without_login)


_MAX_ADVANCE = timedelta(days=32)  # a monthly fee may be charged in advance
_MAX_AGE = timedelta(days=3653)
_IMPORT_HINT = "import its bill: gpubroker report charges FILE"


def import_file(
    broker: Broker, file: Path, provider: str = "", rate: ExchangeRate | None = None, *, replace: bool = False
) -> ChargesResult:
    """Import charges from a CSV file (`broker.app.billing.charges_file`) or a FOCUS export
    (`broker.app.billing.focus_charges`; only ``provider`` if given), and apply them (`apply_charges`). Idempotent.
    With ``replace``, they replace earlier ones of the same provider and account for the time that they cover; without
    it, only estimated ones: the file may be another part of the bill.

    Amounts in the currency of ``rate`` become dollars by it, and the charges' source names it. Raises `UnknownName` for
    an unknown provider, and `InvalidInput` with every invalid line (nothing is stored then), or for a provider whose
    charges are read from its API, because they would count twice.
    """
    skipped: Sequence[SkippedRows] = ()
    if is_focus_export(file):
        export, wanted = read_focus_charges(file, rate), provider_name(provider)
        skipped, charges = export.skipped, [charge for charge in export.charges if wanted in ("", charge.provider)]
        if not charges:
            raise InvalidInput(f"has no charges{f' of {wanted}' if wanted else ''} in USD", where=str(file))
    else:
        charges = read_charges(file, provider, rate)
    now = broker.clock.now()
    for charge in charges:
        if charge.starts < now - _MAX_AGE:
            mistake = "begins more than ten years ago"
        elif charge.starts > now:
            mistake = "begins in the future"
        elif charge.ends > now + _MAX_ADVANCE:
            mistake = f"ends more than {_MAX_ADVANCE.days} days from now"
        else:
            continue
        period = f"{charge.starts.date()} to {charge.ends.date()}"
        raise InvalidInput(
            f"a charge of {charge.amount} for {period} {mistake}", where=str(file), hint="correct its dates"
        )
    names = {charge.provider for charge in charges}
    known_providers = {*NAMES, *broker.registries.providers, *_outstanding_providers(broker, "")}
    for name in sorted(names):
        if name not in known_providers:
            raise UnknownName("provider", name, known_providers)
        if API in broker.store.charges.sources(name):
            raise InvalidInput(
                f"charges of {name} are read from its API already; from a file they would count twice", where=str(file)
            )
    try:
        record_result = broker.store.charges.record(
            charges,
            source=file.name if rate is None else f"{file.name}, {rate}",
            at=now,
            whole=_scopes(charges),
            replace=replace,
        )
    except InvalidInput as error:
        error.where = str(file)
        raise
    adjusted_attempts, notices = apply_charges(broker, min(charge.starts for charge in charges))
    changed, replaced = (
        {name: counts.get(name, 0) for name in sorted(names)}
        for counts in (record_result.changed, record_result.replaced)
    )
    done = {
        "changed": changed,
        "replaced": replaced,
        "adjusted": adjusted_attempts,
        "unknown": _unknown_keys(broker, charges),
        "skipped": skipped,
        "rate": None if rate is None else str(rate),
    }
    return ChargesResult.from_parts(**done, alerts=[charge.title for charge in notices])


def _scopes(charges: Iterable[Charge]) -> list[ChargeScope]:
    """What a file covers of each provider and account: from its first charge until the end of its last, but not beyond
    the month (UTC) in which the last one starts, because bills are monthly and a charge may run into the next one."""
    charges_by_account: dict[tuple[str, str], list[Charge]] = {}
    for charge in charges:
        charges_by_account.setdefault((charge.provider, charge.account), []).append(charge)
    return [
        ChargeScope(
            provider,
            min(charge.starts for charge in account_charges),
            min(
                max(charge.ends for charge in account_charges),
                BillingMonth.of(max(charge.starts for charge in account_charges)).end,
            ),
            account,
        )
        for (provider, account), account_charges in charges_by_account.items()
    ]


def _unknown_keys(broker: Broker, charges: Iterable[Charge]) -> list[str]:
    """The keys of no attempt that can have such a charge: perhaps misspelled, or of another store."""
    keys, known_keys = {item.key for item in charges if item.key}, set()
    with broker.store.reading() as reader:
        for view in reader.views(sorted({job_of(key) for key in keys})):
            known_keys |= {attempt_key(view.id, number + 1) for number in range(view.attempt_count)}
        unreadable = {item.job_id for item in reader.unreadable}
        ends = {
            attempt.key: attempt.gone_at for _, attempt in _attempts(reader, _charged_machine_time(reader, charges))
        }
    known_keys |= {key for key in keys if job_of(key) in unreadable}  # such a job may have the attempt
    return sorted((keys - known_keys) | {item.key for item in charges if is_late(item, ends.get(item.key))})


def apply_charges(broker: Broker, since: datetime | None = None) -> tuple[list[Comparison], list[Notice]]:
    """Adjust the ledger to the charges, attempt by attempt, and queue notices of differences over the threshold.
    Idempotent, also from several processes. Returns the adjusted attempts and the notices.

    Covers attempts with charges, or with adjustments to charges that are gone, since the start of the oldest month
    whose bills may still change, or since ``since`` (UTC) if that is earlier."""
    now = broker.clock.now()
    adjusted_attempts, comparisons = [], []
    begin = BillingMonth.of(min(since or now, now - LONGEST_AFTER)).start
    with broker.store.reading() as reader:
        times = {
            (item.job_id, item.attempt): item for item in _charged_machine_time(reader, reader.charges(since=begin))
        }
        earlier_adjusted = {
            (item.job_id, item.attempt) for item in reader.paid_attempts(begin, None, BILLED) if item.adjusted
        }
        other_times = reader.machine_time(job_ids=sorted({job_id for job_id, _ in earlier_adjusted - times.keys()}))
        times |= {key: item for item in other_times if (key := (item.job_id, item.attempt)) in earlier_adjusted}
        pairs = _attempts(reader, times.values())
        charged = ChargeIndex(_charges(reader, _start_times(pairs), begin), now)
        results = [_compare_and_adjust(reader, view, attempt, charged, now) for view, attempt in pairs]
    for (view, attempt), (comparison, adjustments) in zip(pairs, results, strict=True):
        if adjustments:
            with broker.store.writing() as tx:  # compared again, because charges or entries may have changed meanwhile
                charged = ChargeIndex(_charges(tx, [attempt.up_since], now, comparison.provider), now)
                comparison, adjustments = _compare_and_adjust(tx, view, attempt, charged, now)
                tx.post(adjustments)
        comparisons.append(comparison)
        if adjustments:
            adjusted_attempts.append(comparison)
    threshold = Threshold(broker.settings.charges.alert_over, broker.settings.charges.alert_above)
    notices = [
        *(n for item in comparisons if (n := _attempt_notice(item, threshold))),
        *_provider_notices(comparisons, threshold),
    ]
    for notice in notices:
        broker.store.outbox.add(notice, recipients(broker.settings, notice), now)
    return adjusted_attempts, notices


def _compare_and_adjust(
    reader: StoreReader, view: JobView, attempt: AttemptView, charged: ChargeIndex, now: datetime
) -> tuple[Comparison, Sequence[Entry]]:
    """The comparison after the adjustment, and the entries of the adjustment, if any is needed."""
    entries = reader.entries(view.id)
    adjustments = adjustment(view, attempt, compare(view, attempt, entries, charged, now), entries, now)
    return compare(view, attempt, [*entries, *adjustments], charged, now), adjustments


def _attempts(reader: StoreReader, times: Iterable[MachineTime]) -> list[tuple[JobView, AttemptView]]:
    """The attempts with this machine time that a provider charges for, with their jobs, in the same order."""
    cash_times = [machine for machine in times if machine.money is MoneyKind.CASH]
    views = {view.id: view for view in reader.views(list({machine.job_id for machine in cash_times}))}
    attempts_with_jobs = []
    for machine in cash_times:
        view = views.get(machine.job_id)  # None: this version cannot read it
        attempts = view.attempts if view is not None else ()
        attempts_with_jobs += [
            (view, a) for a in attempts if view is not None and a.number == machine.attempt and is_billed(a)
        ]
    return attempts_with_jobs


def _charged_machine_time(reader: StoreReader, charges: Iterable[Charge]) -> Sequence[MachineTime]:
    keys = {item.key for item in charges if item.key}
    times = reader.machine_time(job_ids=list({job_of(key) for key in keys}))
    return [item for item in times if attempt_key(item.job_id, item.attempt) in keys]


def _charges(
    reader: StoreReader, begins: Iterable[datetime | None], since: datetime | None, provider: str | None = None
) -> Sequence[Charge]:
    """The charges since ``since`` (UTC; None: all), or since an earlier time at which one of the machines came up."""
    if since is None:
        return reader.charges(provider)
    # Credits may be dated before the machine was up.
    return reader.charges(provider, since=min([since, *(at for at in begins if at is not None)]) - LONGEST_AFTER)


def _start_times(pairs: Iterable[tuple[JobView, AttemptView]]) -> list[datetime | None]:
    return [attempt.up_since for _, attempt in pairs]


def _outstanding_providers(broker: Broker, provider: str) -> Mapping[str, datetime]:
    """The providers with charges that are outstanding or may still change, each with the time (UTC) to ask from."""
    now = broker.clock.now()
    earliest: dict[str, datetime] = {}
    with broker.store.reading() as reader:
        times = reader.machine_time(since=now - LONGEST_AFTER)
        pairs = _attempts(reader, [machine for machine in times if provider in ("", machine.provider)])
        charged = ChargeIndex(_charges(reader, _start_times(pairs), now), now)
        for view, attempt in pairs:
            name, up = attempt.placement.offer.provider, attempt.up_since or now
            comparison = compare(view, attempt, (), charged, now)
            if comparison.standing is not ComparisonState.COMPARED or comparison.estimated:
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


def _attempt_notice(comparison: Comparison, threshold: Threshold) -> Notice | None:
    if comparison.difference is None or not threshold.passed(comparison.metered, comparison.difference):
        return None
    title = f"{comparison.provider} charged {comparison.billed} for {comparison.key}; metered: {comparison.metered}"
    return Notice(f"charges/{comparison.key}/{comparison.billed}", title, _BODY, Severity.WARNING)


_BODY = "The ledger was adjusted to the charge. See `gpubroker report billed`."


def _provider_notices(comparisons: Sequence[Comparison], threshold: Threshold) -> Iterator[Notice]:
    """Notices of the sums of differences, one for each provider and month."""
    sums: dict[tuple[str, str], tuple[Money, Money]] = {}
    for comparison in comparisons:
        if comparison.difference is not None and comparison.gone_at is not None:
            slot = (comparison.provider, f"{comparison.gone_at:%Y-%m}")
            metered, difference = sums.get(slot, (Money.ZERO, Money.ZERO))
            sums[slot] = (metered + comparison.metered, difference + comparison.difference)
    for (provider, month), (metered, difference) in sorted(sums.items()):
        if threshold.passed(metered, difference):
            title = f"{provider} charged {metered + difference} in {month} (UTC); metered: {metered}"
            yield Notice(f"charges/{provider}/{month}", title, _BODY, Severity.WARNING)
