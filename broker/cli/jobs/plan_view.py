"""A plan and its verdict as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results.plans import WARNING, PlacementResult, PlanJudge, PlanResult
from broker.app.results.reasons import EXCLUDED_BY_THE_JOB
from broker.cli.jobs.job_view import covers, shares_of
from broker.cli.jobs.queue_view import free_line
from broker.cli.render import formats
from broker.cli.render.tables import Column, ValueColumn, fitting, hanging, listed
from broker.core.job.reasons import MISSING_SETUP
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import Answer
from broker.core.values.units import print_duration
from broker.reconciler.admission.hold_limits import HoldLimit

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.results.errors import VerdictResult
    from broker.app.results.money import HoldTerms

_NOTES = 3  # shown unless all are asked for
_NAMED = 4  # machines in the heading
_JUDGES = {PlanJudge.ACTIVE_POLICY: " by the active policy.", PlanJudge.POLICY_FILES: " by these policy files."}
_NO_POLICY = ". No policy is active: owned and sandbox capacity only, nothing that costs cash."
_ANSWERS = {
    Answer.ALLOW: ("Allowed", "bold green"),
    Answer.ASK: ("Approval needed", "bold yellow"),
    Answer.DENY: ("Denied", "bold red"),
}


def screen(console: Console, found: PlanResult, *, explain: bool = False) -> Iterator[RenderableType]:
    """The whole plan: job, placements, verdict, money, notes. ``explain``: also every cost term and rejection."""
    yield _heading(found)
    yield from (Text(one, style="bold red") for one in found.unknown_providers)
    if found.placements:
        yield from _placements(console, found, found.placements, found.feasible)
        if explain:
            yield from _terms(console, found.placements)
    elif found.estimate:
        yield Text("Estimate only: no job can be started there with the present setup.", style="yellow")
        yield from _placements(console, found, found.estimate, found.estimated)
        missing = (f"{one.text}: {one.what_would_change_it}" for one in found.reasons if one.reason in MISSING_SETUP)
        yield Text.assemble(("missing: ", "yellow"), "; ".join(missing))
    if explain or not found.placements:
        yield from _rejections(found, every=explain)
    yield from _verdict(found)
    notes = [note for note in found.notes if note not in found.unknown_providers]
    shown = [*notes, *found.remarks] if explain else notes[:_NOTES]
    yield from map(_note, shown)
    offers = [one.offer for one in found.placements]
    shared = {f"{one.provider}/{one.zone or one.region}/{one.instance_type}" for one in offers}
    yield from (free_line(one) for one in found.machines if one.name in shared)
    if found.waits_for_own_machines:
        yield Text("waiting: other jobs use the matching capacity; this job starts when a machine is free")
    if not explain and found.placements and found.rejected:
        more = len(notes) - len(shown)
        also = f", {formats.plural(more, 'more note')}" if more else ""
        many = formats.plural(found.rejected, "offer")
        yield Text(f"{many} rejected{also}; `plan --explain` shows them", style="dim")


def _heading(found: PlanResult) -> Text:
    job = found.job
    wanted = list(dict.fromkeys(job.machines))
    shown, more = wanted[:_NAMED], len(wanted) - _NAMED
    machines = " or ".join([*shown, f"{more} others"] if more > 0 else shown) or "a model to be sized"
    nodes = f"{job.nodes} × " if job.nodes > 1 else ""
    text = Text.assemble((job.name, "bold"), f": {nodes}{machines}")
    if found.work_left is not None:
        text.append(f", {formats.length(found.work_left)} of work{f' on {job.work_on}' if job.work_on else ''}")
    if found.deadline is not None:
        left = formats.length(found.deadline - found.made_at)
        text.append(f", deadline {formats.moment(found.deadline)} (in {left})")
    unasked = "" if job.max_duration is not None else " (no `max_duration` is given)"
    text.append(f", stopped after {formats.length(found.max_duration)} of billed time{unasked}")
    if found.max_cost is not None:
        text.append(f" or {formats.money(found.max_cost)}")
    return text


def _placements(
    console: Console, found: PlanResult, shown: Sequence[PlacementResult], count: int
) -> list[RenderableType]:
    columns: tuple[ValueColumn[PlacementResult], ...] = (
        ValueColumn("#", lambda one: str(one.rank), align="right"),
        ValueColumn("location", lambda one: f"{one.offer.provider}/{one.offer.zone or one.offer.region}"),
        ValueColumn("machine", _machine),
        ValueColumn("machine type", lambda one: one.offer.instance_type, 4),
        ValueColumn("purchase type", lambda one: formats.purchase_type(one.offer.capacity_type)),
        ValueColumn("cost", _cost, align="right"),
        ValueColumn("$/h", lambda one: formats.rate(one.rate_per_hour), 2, "right"),
        ValueColumn("duration", lambda one: formats.length(one.duration), 3, "right"),
        ValueColumn("finish", lambda one: _finish(one.finish, found.made_at), 1),
        ValueColumn("interruptions/h", _interruptions, 5, "right"),
        ValueColumn("useful time", lambda one: formats.percent(one.useful_fraction), 6, "right"),
        ValueColumn("kg CO2e", _emissions, 1, "right"),
        ValueColumn("price", _price, 7),
    )
    more = f"{count:,} of {formats.plural(found.offers_seen, 'offer')} match"
    if over := found.over_max_cost:
        more += f", {over:,} of them above the job's max_cost of {formats.money(found.max_cost)}"
    more += "; costs are estimates"
    if count > len(shown):
        more += f"; the best {len(shown)} are shown"
    return listed(console, columns, shown, more)


def _machine(one: PlacementResult) -> str:
    offer = one.offer
    machine = f"{offer.accelerator}:{offer.count}" if offer.accelerator else "cpu"
    return f"{one.nodes} × {machine}" if one.nodes > 1 else machine


def _cost(one: PlacementResult) -> Text:
    return Text(formats.money(one.expected_cost) + ("" if one.duration is not None else " /h"), style="bold")


def _finish(at: datetime | None, now: datetime) -> str:
    if at is None:
        return "not known"
    local = at.astimezone()
    return f"{local:%a %H:%M}" if (at - now).days < 6 else f"{local:%Y-%m-%d %H:%M}"


def _interruptions(one: PlacementResult) -> str:
    return f"{one.interruptions_per_hour:.1%}" if one.interruptions_per_hour else "never"


def _emissions(one: PlacementResult) -> str:
    """Emissions of the whole job, or of an hour if its length is unknown; empty if not requested."""
    if one.kg_co2e_per_hour is None:
        return ""
    return f"{one.kg_co2e_per_hour:.3g} /h" if one.kg_co2e is None else f"{one.kg_co2e:,.3g}"


def _price(one: PlacementResult) -> str:
    notes = ["reference"] if one.offer.reference else []
    notes += ["simulated"] if one.offer.money is MoneyKind.SANDBOX else []
    return ", ".join(notes) or f"{formats.age(one.offer.age_seconds)} old"


def _terms(console: Console, shown: Sequence[PlacementResult]) -> Iterator[RenderableType]:
    """The cost terms of each placement, and its ranking value if that is higher."""
    columns = (Column("  term"), Column("USD", align="right"), Column("calculation", folds=True))
    for one in shown:
        yield Text.assemble(
            ("\n" if one.rank == 1 else "", ""),
            (f"{one.rank}. {one.offer.pool}", "bold"),
            f": {formats.money(one.expected_cost)}{' for one hour' if one.duration is None else ''},"
            f" {one.throughput:.2g}× the reference throughput,"
            f" {formats.percent(one.useful_fraction)} useful time,"
            f" {formats.rate(one.price_per_useful_hour)} per useful hour; price from {one.offer.source}",
        )
        cells = [[f"  {term.name}", formats.money(term.amount), term.how] for term in one.terms]
        cells += [[f"  + {term.name}", formats.money(term.amount), term.how] for term in one.ranking_terms]
        if one.ranking_terms:
            cells.append(["  = ranking value", formats.money(one.ranked_by), "terms with + affect the ranking only"])
        yield fitting(console, columns, cells)


def _note(note: str) -> Text:
    if note.startswith(WARNING):
        return Text.assemble((WARNING, "yellow"), note.removeprefix(WARNING))
    return Text.assemble(("note: ", "cyan"), note)


def _rejections(found: PlanResult, *, every: bool) -> Iterator[RenderableType]:
    """First the reasons that can be changed, those of the most suitable offers first; then those that the job itself
    sets, in one line unless ``every`` rejection is shown or there are no others."""
    if not found.rejected:
        if not found.placements:
            yield Text("No offers are known. Run `gpubroker prices poll`.", style="yellow")
        return
    yield Text(f"\nRejected: {found.rejected:,} of {formats.plural(found.offers_seen, 'offer')}", style="bold")
    excluded = [one for one in found.reasons if one.reason in EXCLUDED_BY_THE_JOB and not one.alone]
    decisive = [one for one in found.reasons if one not in excluded]
    folded = excluded if decisive and not every else []
    for one in decisive if folded else [*decisive, *excluded]:
        number = f"{one.count:>8,} × "
        counted = Text.assemble((f"{number.strip()} ", "bold"), one.text, (f"  [{one.reason.value}]", "dim"))
        yield hanging(counted, len(number) - len(number.strip()) - 1)
        for rejected in one.examples if every else one.examples[:1]:
            detail = f": {rejected.detail}" if rejected.detail else ""
            yield hanging(Text(f"e.g. {rejected.offer}{detail}", style="dim"), len(number))
        yield hanging(Text.assemble(("fix: ", "cyan"), one.what_would_change_it), len(number))
    if folded:
        kinds = ", ".join(f"{one.count:,} {one.reason.value}" for one in folded)
        many = f"{sum(one.count for one in folded):,} × excluded by the job itself"
        yield hanging(Text(f"{many} ({kinds}); use --explain for examples", style="dim"), 2)


def _verdict(found: PlanResult) -> Iterator[RenderableType]:
    verdict = found.verdict
    if verdict.answer is None:
        kind = "the policies deny every feasible offer" if found.exit_code == 3 else "no offer is feasible"
        yield Text.assemble(("No placement: ", "bold red"), f"{kind}.")
        return
    yield Text.assemble(_ANSWERS[verdict.answer], _JUDGES[verdict.judged_by] if verdict.judged_by else _NO_POLICY)
    yield from map(_objection, verdict.objections)
    if verdict.would_pass:
        yield hanging(Text(verdict.would_pass, style="cyan"), 2)
    if found.exit_code in (0, 6):  # no money is held for a job that cannot be submitted
        yield from _money(found)


def _objection(verdict: VerdictResult) -> Text:
    place = verdict.source
    text = Text(f"  {verdict.message}" if place in verdict.message else f"  {verdict.message} ({place})")
    if verdict.approvers:
        text.append(f"\n  approvers: {', '.join(verdict.approvers)}")
    return text


def _money(found: PlanResult) -> Iterator[RenderableType]:
    if not found.hold:
        yield Text("Money: nothing is held; this capacity is already paid for.")
        return
    first, *others = (_why(terms, found) for terms in found.hold_terms)
    yield Text.assemble(("Money: ", "bold"), f"{first}.")
    yield from (hanging(Text(f"{line}."), 2) for line in others)
    shares = shares_of(found.budget_shares)
    if not shares and MoneyKind.SANDBOX in found.hold:
        shares = ["No budget counts simulated money; `counts: [sandbox]` in a budget does."]
    yield from (hanging(Text(line), 2) for line in shares)
    longest = formats.length(found.hold_lasts)
    yield hanging(Text(f"At the most expensive fallback price it lasts {longest}. The unused part is released."), 2)


def _why(terms: HoldTerms, found: PlanResult) -> str:
    """Money of one kind that is held: for how long, at which rate, and which limit of the job decides the amount."""
    lasts = terms.until - terms.start
    at_once = terms.held - terms.rate_per_hour.for_duration(lasts)
    pays = f"for up to {formats.length(lasts)} from now at up to {formats.rate(terms.rate_per_hour)}/h"
    if at_once.micros >= 10_000:
        pays += f", and {formats.money(at_once)} at the start for moving data"
    amount = f"{formats.money(terms.held)} {terms.money.value}"
    return f"{amount} is held at submission, {pays}; {_limit(terms, found)}"


def _limit(terms: HoldTerms, found: PlanResult) -> str:
    longest = print_duration(found.max_duration)
    if terms.limited_by is HoldLimit.MAX_COST:
        return f"limited by max_cost ({formats.money(found.max_cost)}), before max_duration ({longest})"
    if terms.limited_by is HoldLimit.SESSION:
        return f"more is held while the session runs, for {longest} at most"
    if terms.limited_by is HoldLimit.EXPECTED and terms.quantile is not None:
        return f"{covers(terms.quantile)}, for {longest} at most"
    named = "max_duration" if found.job.max_duration is not None else "the default max_duration"
    return f"limited by {named} ({longest} plus the time to stop)"
