"""Findings on owned, held and rented capacity, from the hours in use, and on rules that only warn."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from broker.app.advise.history import HOUR, Interval
from broker.app.assumptions import load_assumptions
from broker.app.capacity.plan import full_hour, hourly_usage
from broker.app.documents import Figure, Moment, Result
from broker.app.wiring import Broker
from broker.core.market.offers import CapacityType, OfferQuery
from broker.core.market.price_basis import usd_per_gpu_hour
from broker.core.market.term_prices import TermPrices, term_prices
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import ActionKind, Verdict
from broker.economics.assumptions import Assumptions
from broker.economics.reserve.capacity_findings import SHORTEST, AcceleratorUse, CapacityFinding, findings
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.economics.units import HOURS_PER_MONTH

_RENTED = (CapacityType.ON_DEMAND, CapacityType.SPOT)


class RecordedUse(Result):
    """The use of one accelerator, and the prices (USD per GPU-hour) that it is judged by; null where not known."""

    accelerator: str
    hours: int
    gpu_hours: int
    rented_gpu_hours: int
    owned: int
    reserved: int
    rent_usd_per_gpu_hour: Figure
    held_usd_per_gpu_hour: Figure | None
    reserve_usd_per_gpu_hour: Figure | None
    own_usd_per_gpu_hour: Figure | None
    energy_usd_per_gpu_hour_at_work: Figure

    @classmethod
    def of(cls, use: AcceleratorUse) -> Self:
        return cls.from_parts(
            use,
            hours=len(use.demand),
            gpu_hours=sum(use.demand),
            rented_gpu_hours=sum(use.rented),
            rent_usd_per_gpu_hour=use.rent,
            held_usd_per_gpu_hour=use.held_usd,
            reserve_usd_per_gpu_hour=use.reserve_usd,
            own_usd_per_gpu_hour=use.own_usd,
            energy_usd_per_gpu_hour_at_work=use.energy_usd,
        )


class WarnedRuleResult(Result):
    """A rule that only warns, and the jobs that it would have stopped, and refused a start or money. ``message`` and
    ``source``: of its newest verdict."""

    name: str
    kind: str
    stopped: list[str]
    refused: list[str]
    first: Moment
    last: Moment
    message: str
    source: str


class CapacityFindingList(Result):
    """What recorded use recommends, and what rules that only warn would have stopped. ``enough_use``: whether enough
    hours of any accelerator are known."""

    since: Moment
    now: Moment
    findings: list[CapacityFinding]
    enough_use: bool
    uses: list[RecordedUse]
    notes: list[str]
    warned_rules: list[WarnedRuleResult]


@dataclass
class _RecordedUse:
    """The usage of one accelerator: all of it, the rented part, and its cost."""

    every: list[Interval]
    rented: list[Interval]
    gpu_hours: float = 0.0
    usd: float = 0.0


def capacity_findings(
    broker: Broker, since: datetime, warned_rules: Sequence[WarnedRuleResult] = ()
) -> CapacityFindingList:
    """The findings on all usage from ``since`` (UTC) on and on held capacity, by the rules of thumb of the active
    policies.

    Simulated machines do not count. Reads only the store: attempts, holdings and offers."""
    now = broker.clock.now()
    assumptions = load_assumptions(broker.settings.store_url, lambda: broker)
    use_by_accelerator, active_holdings = (
        _recorded_use(broker, since, now),
        [r.holding for r in broker.store.holdings() if r.holding.active(now)],
    )
    names = sorted({*use_by_accelerator, *(holding.accelerator for holding in active_holdings)})
    uses, all_findings, notes = [], list[CapacityFinding](), list[str]()
    for name in names:
        accelerator_holdings = [holding for holding in active_holdings if holding.accelerator == name]
        use = _accelerator_use(
            name,
            use_by_accelerator.get(name, _RecordedUse([], [])),
            accelerator_holdings,
            term_prices(broker.store.offers(OfferQuery(accelerators=(name,))), now, name),
            assumptions,
            since,
            now,
            notes,
        )
        if use is None:
            continue
        uses.append(use)
        new_findings = findings(use, assumptions)
        all_findings += new_findings
    if not names:
        notes.append("no GPU job ran and nothing is on record as held")
    return CapacityFindingList(
        since=since,
        now=now,
        findings=all_findings,
        enough_use=any(len(use.demand) >= SHORTEST for use in uses),
        uses=[RecordedUse.of(use) for use in uses],
        notes=notes,
        warned_rules=list(warned_rules),
    )


def _recorded_use(broker: Broker, since: datetime, now: datetime) -> dict[str, _RecordedUse]:
    use_by_accelerator: dict[str, _RecordedUse] = {}
    with broker.store.reading() as reader:
        for machine_time in reader.machine_time(since=since):
            end = machine_time.until or now
            if not machine_time.card or end <= since:
                continue
            recorded_use = use_by_accelerator.setdefault(machine_time.card, _RecordedUse([], []))
            interval = (max(machine_time.since, since), end, machine_time.gpus)
            recorded_use.every.append(interval)
            if machine_time.capacity_type in _RENTED and (price := machine_time.price_per_gpu) is not None:
                recorded_use.rented.append(interval)
                hours = interval[2] * ((end - interval[0]) / HOUR)
                recorded_use.gpu_hours += hours
                recorded_use.usd += hours * (price.micros / 1_000_000)
    return use_by_accelerator


def _accelerator_use(
    name: str,
    recorded_use: _RecordedUse,
    holdings: Sequence[Holding],
    prices: TermPrices,
    assumptions: Assumptions,
    since: datetime,
    now: datetime,
    notes: list[str],
) -> AcceleratorUse | None:
    """The hours of one accelerator with its prices; None if no rent is known."""
    rent = recorded_use.usd / recorded_use.gpu_hours if recorded_use.usd else None
    offer = next(iter(prices.terms), None)
    if rent is not None:
        notes.append(f"{name}: renting costs ${rent:.4g} per GPU-hour, as was paid on average for what ran")
    elif prices.rent is not None:
        rent = prices.rent.usd
        rent_texts = [] if prices.rent is None else [f"rent: {prices.rent.text}"]
        notes += [f"{name}: {note}" for note in (*rent_texts, *prices.notes)]
    else:
        notes.append(f"{name}: left out, no price of renting is known")
        return None
    owned = [holding for holding in holdings if holding.kind is HoldingKind.OWNED]
    reserved = [holding for holding in holdings if holding.kind is not HoldingKind.OWNED]
    # Use counts as known from the first recorded hour on; capacity added later does not shorten that time.
    known_starts = [*(interval[0] for interval in recorded_use.every), *(holding.starts for holding in holdings)]
    start = full_hour(max(since, min(known_starts, default=since)))
    until = full_hour(now)
    hours = (until - start) // HOUR
    if hours < 1:
        notes.append(f"{name}: left out, less than an hour of use is known")
        return None
    if hours < SHORTEST:
        notes.append(f"{name}: {hours} h of use are known; findings need at least a week of use")

    def held_hours(holding: Holding) -> int:
        """The number of these hours for which it is held."""
        return min(max((until - holding.starts) // HOUR, 0), hours)

    owned.sort(key=held_hours, reverse=True)
    reserved.sort(key=held_hours, reverse=True)
    if hours >= SHORTEST:
        notes += [
            f"{name}: the {h.gpus} held since {h.starts:%Y-%m-%d} ({h.kind.value}) are evaluated once they have been "
            "held for a week"
            for h in (*owned, *reserved)
            if held_hours(h) < SHORTEST
        ]
    # Judged capacity has its own price; if none is judged yet, more of it would cost as much as what was added.
    judged_holdings, priced_holdings = (
        [h for h in candidates if held_hours(h) >= SHORTEST] or candidates for candidates in (owned, reserved)
    )
    energy = (
        _mean(
            judged_holdings, [h.energy_usd_per_gpu_hour(assumptions.kwh_usd, assumptions.pue) for h in judged_holdings]
        )
        or 0.0
    )
    if energy:
        notes.append(
            f"{name}: energy of owned ones is ${energy:.4g} per GPU-hour at work (${assumptions.kwh_usd:g} a kWh, PUE"
            f" {assumptions.pue:g}); what they draw idle is not counted"
        )
    return AcceleratorUse(
        accelerator=name,
        demand=hourly_usage(recorded_use.every, start, hours),
        rented=hourly_usage(recorded_use.rented, start, hours),
        owned=sum(holding.gpus for holding in owned),
        reserved=sum(holding.gpus for holding in reserved),
        rent=rent,
        held_usd=_mean(priced_holdings, [holding.usd_per_gpu_hour for holding in priced_holdings]),
        reserve_usd=None if offer is None else usd_per_gpu_hour(offer),
        own_usd=_mean(judged_holdings, [holding.usd_per_gpu_hour for holding in judged_holdings]),
        reserve_lot=1 if offer is None else offer.count,
        term_hours=None if offer is None else (offer.term_months or 0) * HOURS_PER_MONTH,
        owned_for=[held_hours(holding) for holding in owned for _ in range(holding.gpus)],
        reserved_for=[held_hours(holding) for holding in reserved for _ in range(holding.gpus)],
        energy_usd=energy,
    )


def _mean(holdings: Sequence[Holding], prices: Sequence[float]) -> float | None:
    """The mean price of a GPU in these holdings; None without any."""
    gpus = sum(holding.gpus for holding in holdings)
    if not gpus:
        return None
    return sum(holding.gpus * price for holding, price in zip(holdings, prices, strict=True)) / gpus


def warned_rules(broker: Broker, since: datetime) -> list[WarnedRuleResult]:
    """The rules that have warned since ``since`` (UTC), by name."""
    with broker.store.reading() as reader:
        decisions = reader.decisions(since=since)
    warnings_by_rule: dict[str, list[tuple[Decision, Verdict]]] = defaultdict(list)
    for source_decision in sorted(decisions, key=lambda decision: decision.at):
        for verdict in source_decision.verdicts:
            if verdict.warns:
                warnings_by_rule[verdict.name].append((source_decision, verdict))
    return [
        WarnedRuleResult(
            name=name,
            kind=rule_warnings[-1][1].rule,
            message=rule_warnings[-1][1].message,
            source=str(rule_warnings[-1][1].source),
            stopped=_jobs(
                source_decision for source_decision, _ in rule_warnings if source_decision.action is ActionKind.CONTINUE
            ),
            refused=_jobs(
                source_decision
                for source_decision, _ in rule_warnings
                if source_decision.action is not ActionKind.CONTINUE
            ),
            first=rule_warnings[0][0].at,
            last=rule_warnings[-1][0].at,
        )
        for name, rule_warnings in sorted(warnings_by_rule.items())
    ]


def _jobs(decisions: Iterable[Decision]) -> list[str]:
    return list(dict.fromkeys(decision.job_id or decision.job_name for decision in decisions))
