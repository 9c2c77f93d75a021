"""The document and the tables of a simulation. Times in seconds, amounts as decimal strings in USD."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from broker.app.billing.budgets import budget_rules
from broker.cli.render import formats
from broker.cli.render.tables import Column, cell_table_parts
from broker.core.ports import PolicySet
from broker.core.values.money import Money
from tests.lab.simulation.figures import (
    GANGS,
    OverTime,
    SimulationResult,
    TeamTally,
    WaitFigures,
    agreement,
    gang_of,
    jain,
)
from tests.lab.simulation.market import PoolInUse
from tests.lab.simulation.workload import DAY, HOUR

Document = Mapping[str, Any]


def document(
    result: SimulationResult, policy: PolicySet, files: Sequence[str], capacity: Mapping[str, int]
) -> dict[str, Any]:
    """``digest``: SHA-256 over every event and movement. ``balanced``: whether the ledger balances, with nothing held
    for a job; ``faults``: what is wrong otherwise. ``fairness_of_service``: Jain's index over teams of useful by asked
    GPU-hours; ``fairness_of_slowdown``: of their slowdowns."""
    total = TeamTally()
    for tally in result.teams.values():
        total.add(tally)
    gangs = _gangs(result)
    service = [one.useful_gpu_seconds / one.asked_gpu_seconds for one in result.teams.values()]
    slowdowns = [one.slowdowns / one.finished for one in result.teams.values() if one.finished]
    return {
        "simulated": True,
        "workload": result.workload.name,
        "start": f"{result.workload.start:%Y-%m-%dT%H:%M:%SZ}",
        "days": result.size.days,
        "seed": result.size.seed,
        "jobs": total.submitted,
        "policies": list(files),
        "capacity": dict(capacity),
        "demand": dict(result.size.demand),
        "ended_after_s": result.seconds,
        "total": _team("", total),
        "teams": [_team(name, tally) for name, tally in result.teams.items()],
        "pools": [_pool(pool, result.size.days) for pool in result.pools],
        "budgets": list(_budgets(result, policy)),
        "fairness_of_service": _rounded(jain(service), 3),
        "fairness_of_slowdown": _rounded(jain(slowdowns), 3),
        "movements": result.ledger.movements,
        "decisions": result.decisions,
        "rounds": result.rounds,
        "balanced": not result.faults,
        "faults": result.faults[:20],
        "digest": result.digest,
        "notes": list(result.workload.notes),
        "over_time": _over_time(result.over_time),
        "gangs": gangs,
        "recorded": _recorded(result, gangs) if result.workload.recorded else None,
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _waits(waits: Sequence[int]) -> dict[str, float]:
    """From submission to the first machine, of the jobs that got one. ``waited_share``: of them that waited for a
    minute or longer."""
    found = WaitFigures.of(waits)
    return {
        "mean_s": round(found.mean, 1), "p50_s": found.p50, "p95_s": found.p95, "longest_s": found.longest,
        "waited_share": round(found.waited, 4),
    }  # fmt: skip


def _team(name: str, tally: TeamTally) -> dict[str, Any]:
    """``refused``: submissions by reason; ``put_off``: jobs that the policies did not let start at first when their
    turn came; ``stopped``: by their limits; ``slowdown``: the mean of (finish - submission) / work, bounded."""
    used = {str(kind): round(seconds / HOUR, 1) for kind, seconds in sorted(tally.used_gpu_seconds.items())}
    return {
        "team": name,
        "submitted": tally.submitted,
        "refused": dict(tally.refused.most_common()),
        "started": tally.started,
        "put_off": dict(tally.put_off.most_common()),
        "finished": tally.finished,
        "stopped": {str(end): number for end, number in tally.stopped.most_common()},
        "unfinished": tally.unfinished,
        "with_deadline": tally.with_deadline,
        "late": tally.late,
        "interruptions": tally.interruptions,
        "preempted": tally.preempted,
        "repeated_gpu_hours": round(tally.repeated_gpu_seconds / HOUR, 2),
        "waiting": _waits(tally.waits),
        "slowdown": round(tally.slowdowns / tally.finished, 3) if tally.finished else None,
        "asked_gpu_hours": round(tally.asked_gpu_seconds / HOUR, 1),
        "useful_gpu_hours": round(tally.useful_gpu_seconds / HOUR, 1),
        "used_gpu_hours": used,
        "cost": {str(kind): amount.as_json() for kind, amount in sorted(tally.spent.items())},
    }


def _gangs(result: SimulationResult) -> list[dict[str, Any]]:
    """Waiting of jobs of one size, in GPUs, beside what a trace says of them."""
    recorded: dict[str, list[int]] = {size: [] for size in GANGS}
    for one in result.workload.recorded:
        recorded[gang_of(one.gpus)].append(one.waited)
    return [
        {
            "gpus": size,
            "started": len(result.gangs[size]),
            "waiting": _waits(result.gangs[size]),
            "recorded": _waits(recorded[size]) if recorded[size] else None,
        }
        for size in GANGS
    ]


def _recorded(result: SimulationResult, gangs: Iterable[Document]) -> dict[str, Any]:
    """Waiting as a trace recorded it. ``*_agree``: Spearman's rank correlation of the mean waits, simulated and
    recorded, over teams and over sizes of jobs; None for fewer than two."""
    by_team: dict[str, list[int]] = {}
    for one in result.workload.recorded:
        by_team.setdefault(one.team, []).append(one.waited)
    means = {team: (WaitFigures.of(result.teams[team].waits).mean, WaitFigures.of(waits).mean)
             for team, waits in sorted(by_team.items()) if team in result.teams}  # fmt: skip
    both = [gang for gang in gangs if gang["recorded"] and gang["started"]]
    return {
        "total": _waits([one.waited for one in result.workload.recorded]),
        "teams": {team: _waits(waits) for team, waits in sorted(by_team.items())},
        "teams_agree": _agreement(list(means.values())),
        "gangs_agree": _agreement([(gang["waiting"]["mean_s"], gang["recorded"]["mean_s"]) for gang in both]),
    }


def _agreement(pairs: Sequence[tuple[float, float]]) -> float | None:
    return _rounded(agreement([now for now, _ in pairs], [then for _, then in pairs]), 3)


def _pool(pool: PoolInUse, days: int) -> dict[str, Any]:
    """What was used within the days in which jobs arrive. ``utilisation``: of its machines, None without a limit;
    ``gpu_utilisation``: of their GPUs, less where jobs leave some idle."""
    there = (pool.machines or 0) * days * DAY
    gpus = there * max(pool.offer.count, 1)
    return {
        "pool": pool.offer.pool,
        "machines": pool.machines,
        "machine_hours": round(pool.used_seconds / HOUR, 1),
        "gpu_hours": round(pool.used_gpu_seconds / HOUR, 1),
        "utilisation": round(pool.used_seconds / there, 4) if there else None,
        "gpu_utilisation": round(pool.used_gpu_seconds / gpus, 4) if gpus else None,
    }


def _budgets(result: SimulationResult, policy: PolicySet) -> Iterator[dict[str, Any]]:
    """Each budget in the periods in which money was spent or held; in its first period if there was none.
    ``most_held``: the most that open jobs held of it when a job was judged: a waiting job holds what its dearest
    fallback may cost, so a budget may refuse jobs although little is spent."""
    amounts = {rule.spec.id: rule.config.amount for rule in budget_rules(policy)}
    held_by = result.ledger.most_held_by_period()
    for name, spent_by in sorted(result.ledger.spent_by_period().items()):
        amount: Money | None = amounts.get(name)
        held = {start: money for start, money in held_by[name].items() if money}
        for start in sorted({*spent_by, *held}) or [result.workload.start]:
            spent = spent_by.get(start, Money.ZERO)
            yield {
                "budget": name,
                "period_start": f"{start:%Y-%m-%dT%H:%M:%SZ}",
                "amount": amount.as_json() if amount else None,
                "spent": spent.as_json(),
                "most_held": held.get(start, Money.ZERO).as_json(),
                "share": round(spent.micros / amount.micros, 4) if amount else None,
            }


def _over_time(found: OverTime) -> dict[str, Any]:
    """Means of each ``step_s`` seconds from the start, in the days in which jobs arrive: accelerators in use by
    capacity type, jobs that wait, and spend in USD an hour by kind of money."""
    return {
        "step_s": found.step,
        "gpus_in_use": {str(kind): _two(slots.means()) for kind, slots in sorted(found.gpus.items())},
        "waiting": _two(found.waiting_means()),
        "usd_per_hour": {
            str(kind): _two([each * HOUR / 1e6 for each in slots.means()])
            for kind, slots in sorted(found.spending.items())
        },
    }


def _two(values: Sequence[float]) -> list[float]:
    return [round(value, 2) for value in values]


# --- tables ---------------------------------------------------------------------------------------------------------

_MOST_BUDGETS = 12
_MOST_REASONS = 8
_EXPLANATIONS = (
    "slowdown: time from submission to finish, divided by the work; 1 is no waiting (work below 10s counts as 10s)",
    "fairness among teams (Jain's index): 1 if all are treated alike, 1/n if one of n gets all; of service: the share"
    " of the requested GPU-hours that was done",
)
_CARRIED = (
    "held more than the amount: jobs that still wait when a period begins take their holds into it; each is judged"
    " again before it starts"
)


def tables(console: Console, found: Document, before: Document | None = None) -> Iterator[RenderableType]:
    """Totals, teams, pools, budgets, refusals, and the differences from an earlier report."""
    head = f"{found['workload']}: {formats.plural(found['jobs'], 'job')} in {formats.plural(found['days'], 'day')}"
    yield Text(f"{head}, seed {found['seed']}; simulated market, machines and money", "bold")
    yield from ("", *_totals(console, found, before))
    for part in (_team_table, _pool_table, _gang_table, _budget_table):
        if shown := part(console, found):
            yield from ("", *shown)
    for title, reasons in (
        ("Refused", found["total"]["refused"]),
        ("Put off at their turn", found["total"]["put_off"]),
    ):
        if reasons:
            rows: list[list[str | Text]] = [
                [why, f"{number:,}"] for why, number in list(reasons.items())[:_MOST_REASONS]
            ]
            yield from ("", *cell_table_parts(console, [Column(title, folds=True), Column("jobs", 0, "right")], rows))
    ledger = "balanced, nothing held" if found["balanced"] else f"NOT balanced: {'; '.join(found['faults'][:3])}"
    yield ""
    yield f"ended after {_time(found['ended_after_s'])} of virtual time"
    yield f"{formats.plural(found['decisions'], 'decision')}, each about a group of identical jobs"
    yield Text(
        f"ledger  {ledger}; {formats.plural(found['movements'], 'movement')}", "" if found["balanced"] else "red"
    )
    yield f"hash    {found['digest']}"
    yield from (Text(note, style="dim") for note in found["notes"])


def _cost(team: Document, kind: str) -> Money:
    return Money.usd(team["cost"].get(kind, "0"))


def _time(seconds: float) -> str:
    return formats.length(timedelta(seconds=seconds))


def _dollars(value: float) -> str:
    return formats.money(Money(round(value)))


def _usd(amount: str) -> str:
    return formats.money(Money.usd(amount))


def _count(value: float) -> str:
    return f"{value:,.0f}"


Figure = tuple[str, Callable[[Document], float | None], Callable[[float], str]]
_FIGURES: tuple[Figure, ...] = (
    ("cost, cash", lambda r: _cost(r["total"], "cash").micros, _dollars),
    ("cost, owned and reserved", lambda r: _cost(r["total"], "amortised").micros, _dollars),
    ("jobs finished", lambda r: r["total"]["finished"], _count),
    ("jobs refused", lambda r: sum(r["total"]["refused"].values()), _count),
    ("jobs stopped by limits", lambda r: sum(r["total"]["stopped"].values()), _count),
    ("jobs unfinished", lambda r: r["total"]["unfinished"], _count),
    ("jobs late", lambda r: r["total"]["late"], _count),
    ("interruptions", lambda r: r["total"]["interruptions"], _count),
    ("gave way", lambda r: r["total"].get("preempted", 0), _count),
    ("waiting, mean", lambda r: r["total"]["waiting"]["mean_s"], _time),
    ("waiting, median", lambda r: r["total"]["waiting"]["p50_s"], _time),
    ("waiting, 95th percentile", lambda r: r["total"]["waiting"]["p95_s"], _time),
    ("slowdown, mean", lambda r: r["total"]["slowdown"], "{:.2f}".format),
    ("GPU-hours useful", lambda r: r["total"]["useful_gpu_hours"], _count),
    ("fairness of service", lambda r: r["fairness_of_service"], "{:.3f}".format),
    ("fairness of slowdown", lambda r: r["fairness_of_slowdown"], "{:.3f}".format),
)


def _totals(console: Console, found: Document, before: Document | None) -> Iterator[RenderableType]:
    columns = [Column("all teams"), Column("now" if before else "", 0, "right")]
    if before is not None:
        columns += [Column("before", 1, "right"), Column("difference", 2, "right")]
    rows: list[list[str | Text]] = []
    for name, value, text in _FIGURES:
        now = value(found)
        row: list[str | Text] = [name, formats.text_or_dash(now, text)]
        if before is not None:
            then = value(before)
            more = 0.0 if now is None or then is None else now - then
            row += [formats.text_or_dash(then, text), f"{'+' if more > 0 else '-'}{text(abs(more))}" if more else ""]
        rows.append(row)
    yield from cell_table_parts(console, columns, rows)
    yield from (Text(line, style="dim") for line in _EXPLANATIONS)


def _right(*titles: str) -> list[Column]:
    """Columns of figures, the last hidden first on a narrow terminal."""
    return [Column(title, rank, "right") for rank, title in enumerate(titles)]


def _team_table(console: Console, found: Document) -> list[RenderableType]:
    rows: list[list[str | Text]] = [
        [
            team["team"],
            f"{team['submitted']:,}",
            f"{sum(team['refused'].values()):,}",
            f"{team['late']:,}" if team["with_deadline"] else formats.NO_VALUE,
            _count(team["useful_gpu_hours"]),
            _time(team["waiting"]["mean_s"]),
            _time(team["waiting"]["p50_s"]),
            _time(team["waiting"]["p95_s"]),
            formats.text_or_dash(team["slowdown"], "{:.2f}".format),
            formats.money(_cost(team, "cash")),
            formats.money(_cost(team, "amortised")),
        ]
        for team in found["teams"]
    ]
    figures = _right("jobs", "refused", "late", "GPU-h useful", "wait mean", "p50", "p95", "slowdown", "cash", "owned")
    return cell_table_parts(console, [Column("team"), *figures], rows)


def _pool_table(console: Console, found: Document) -> list[RenderableType]:
    rows: list[list[str | Text]] = [
        [
            pool["pool"],
            formats.text_or_dash(pool["machines"], _count),
            _count(pool["machine_hours"]),
            formats.text_or_dash(pool["utilisation"], formats.percent),
            formats.text_or_dash(pool["gpu_utilisation"], formats.percent),
        ]
        for pool in found["pools"]
    ]
    figures = _right("machines", "machine-hours", "in use", "GPUs in use")
    return cell_table_parts(console, [Column("pool", folds=True), *figures], rows)


def _gang_table(console: Console, found: Document) -> list[RenderableType]:
    """Waiting times by the size of jobs, beside those that a trace recorded."""
    recorded = found["recorded"]
    titles = ["started", "waited", "mean", "p95"] + (["waited then", "mean then", "p95 then"] if recorded else [])
    rows: list[list[str | Text]] = [
        [
            gang["gpus"],
            f"{gang['started']:,}",
            *_cells(gang["waiting"]),
            *(_cells(gang["recorded"]) if recorded else []),
        ]
        for gang in found["gangs"]
        if gang["started"] or gang["recorded"]
    ]
    shown = cell_table_parts(console, [Column("GPUs of a job"), *_right(*titles)], rows)
    orders = {"teams": recorded["teams_agree"], "sizes of jobs": recorded["gangs_agree"]} if recorded else {}
    if ranks := ", ".join(f"{name} {value:.3f}" for name, value in orders.items() if value is not None):
        shown.append(f"order of mean waits beside the recorded one (Spearman): {ranks}")
    return shown


def _cells(waiting: Document | None) -> list[str]:
    if waiting is None:
        return [formats.NO_VALUE] * 3
    return [formats.percent(waiting["waited_share"]), _time(waiting["mean_s"]), _time(waiting["p95_s"])]


def _budget_table(console: Console, found: Document) -> list[RenderableType]:
    budgets = found["budgets"]
    if not budgets:
        return []
    rows: list[list[str | Text]] = [
        [
            one["budget"],
            one["period_start"][:10],
            _usd(one["spent"]),
            formats.text_or_dash(one["amount"], _usd),
            formats.text_or_dash(one["share"], formats.percent),
            _usd(one["most_held"]),
        ]
        for one in budgets[:_MOST_BUDGETS]
    ]
    more = len(budgets) - _MOST_BUDGETS
    notes = [f"{more} more periods: --json"] if more > 0 else []
    if any(one["amount"] and Money.usd(one["most_held"]) > Money.usd(one["amount"]) for one in budgets):
        notes.append(_CARRIED)
    columns = [Column("budget"), Column("period from"), *_right("spent", "of", "used", "held at most")]
    return cell_table_parts(console, columns, rows, *notes)
