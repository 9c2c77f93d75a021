"""A plan and its verdict as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.jobs.nearest import as_text
from broker.app.results.reasons import EXCLUDED_BY_THE_JOB
from broker.app.results.remedies import REMEDIES
from broker.cli.jobs import held_view
from broker.cli.jobs.queue_view import free_line
from broker.cli.render import formats
from broker.cli.render.tables import Column, fitted, fitting, hanging
from broker.core.job.placements import Placement, Plan
from broker.core.job.reasons import MISSING_SETUP
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import Answer, Verdict
from broker.placement.planner import explain
from broker.placement.pricing.estimate import effective_price
from broker.placement.pricing.time_value import value_of_time
from broker.placement.ranking import beside_the_cost, weighed
from broker.reconciler.admission.admission import lasts

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.jobs.preview import Preview
    from broker.app.wiring import Broker
    from broker.core.ports import PolicySet
    from broker.core.values.money import Money
    from broker.reconciler.admission.admission import Admission

_WARNING = "warning: "  # the prefix of notes that are warnings
_NAMED = 4  # machines in the heading

_COLUMNS = (
    Column("#", align="right"),
    Column("location"),
    Column("machine"),
    Column("machine type", 4),
    Column("purchase type"),
    Column("cost", align="right"),
    Column("$/h", 2, align="right"),
    Column("duration", 3, align="right"),
    Column("finish", 1),
    Column("interruptions/h", 5, align="right"),
    Column("useful time", 6, align="right"),
    Column("kg CO2e", 1, align="right"),
    Column("price", 7),
)


def screen(
    console: Console,
    seen: Preview,
    *,
    explained: PolicySet | None = None,
    judged: str = "by the active policy",
    limit: int = 8,
) -> list[RenderableType]:
    """The whole preview: job, placements, verdict, money, notes. ``explained``: the policies for which every cost term
    and rejection is shown. ``judged``: what judged the plan, in words; empty if no policy is active."""
    parts: list[RenderableType] = [_heading(seen), *(Text(one, style="bold red") for one in seen.strange)]
    if seen.plan.placements:
        parts += _placements(console, seen, limit)
        if explained:
            parts += _terms(console, seen, limit, value_of_time(seen.job, explained.defaults))
    elif seen.estimate is not None:
        parts += _estimate(console, seen, seen.estimate, limit)
    if explained or not seen.plan.placements:
        parts += list(_rejections(seen, every=explained is not None))
    parts += _verdict(seen, judged)
    parts += [_note(note) for note in seen.plan.notes if note not in seen.strange]
    if any(placement.offer.whole is not None for placement in seen.plan.placements):
        parts += map(free_line, seen.machines)
    if seen.waits:
        parts.append(Text("waiting: other jobs use the matching capacity; this job starts when a machine is free"))
    if not explained and seen.plan.placements and seen.plan.rejections:
        rejected = sum(seen.counts.values())
        parts.append(Text(f"{formats.plural(rejected, 'offer')} rejected; use --explain for the reasons", style="dim"))
    return parts


def _estimate(console: Console, seen: Preview, estimate: Plan, limit: int) -> list[RenderableType]:
    """The cost of the job at places where it cannot be started yet, and what is missing."""
    lacking = [reason for reason in seen.counts if reason in MISSING_SETUP]
    missing = "; ".join(f"{reason.text}: {REMEDIES[reason]}" for reason in lacking)
    return [
        Text("Estimate only: no job can be started there with the present setup.", style="yellow"),
        *_placements(console, replace(seen, plan=estimate), limit),
        Text.assemble(("missing: ", "yellow"), missing),
    ]


def judged_by(broker: Broker, what_if: PolicySet | None = None) -> str:
    """The policies that judge the plan, in words; empty if none is active."""
    if what_if is not None:
        return "by these policy files"
    return "by the active policy" if broker.store.active_policy() else ""


def _heading(seen: Preview) -> Text:
    job, plan = seen.job, seen.plan
    wanted = list(dict.fromkeys(request.machine for request in job.resources))
    shown, more = wanted[:_NAMED], len(wanted) - _NAMED
    machines = " or ".join([*shown, f"{more} others"] if more > 0 else shown) or "a model to be sized"
    nodes = f"{job.num_nodes} × " if job.num_nodes > 1 else ""
    text = Text.assemble((job.name, "bold"), f": {nodes}{machines}")
    if plan.remaining is not None and job.work is not None:
        on = f" on {job.work.accelerator}:{job.work.count}" if job.work.accelerator else ""
        text.append(f", {formats.length(plan.remaining)} of work{on}")
    if plan.deadline is not None:
        text.append(f", deadline {formats.moment(plan.deadline)} (in {formats.length(plan.deadline - plan.made_at)})")
    text.append(f", stopped after {formats.length(seen.max_duration)} of billed time")
    if job.max_cost is not None:
        text.append(f" or {formats.money(job.max_cost)}")
    return text


def _placements(console: Console, seen: Preview, limit: int) -> list[RenderableType]:
    shown = seen.in_order[:limit]
    cells = [_cells(number, placement, seen.plan.made_at) for number, placement in enumerate(shown, 1)]
    count = len(seen.plan.placements)
    more = f"{count:,} of {formats.plural(seen.plan.offers_seen, 'offer')} match"
    if over := seen.over_max_cost:
        more += f", {over:,} of them above the job's max_cost of {formats.money(seen.job.max_cost)}"
    more += "; costs are estimates"
    if count > len(shown):
        more += f"; the best {len(shown)} are shown"
    return fitted(console, _COLUMNS, cells, more)


def _cells(number: int, placement: Placement, now: datetime) -> list[str | Text]:
    offer = placement.offer
    nodes = f"{placement.nodes} × " if placement.nodes > 1 else ""
    unit = "" if placement.duration is not None else " /h"
    lost = placement.interruptions_per_hour
    notes = ["reference"] if offer.reference else []
    notes += ["simulated"] if offer.money == "sandbox" else []
    return [
        str(number),
        f"{offer.provider}/{offer.zone or offer.region}",
        f"{nodes}{offer.machine}",
        offer.instance_type,
        formats.purchase_type(offer.capacity_type),
        Text(formats.money(placement.expected_cost) + unit, style="bold"),
        formats.rate(placement.rate),
        formats.length(placement.duration),
        "not known" if placement.finish is None else _when(placement.finish, now),
        "never" if not lost else f"{lost:.1%}",
        formats.percent(placement.useful_fraction),
        _emissions(placement),
        ", ".join(notes) or f"{formats.age(now - offer.as_of)} old",
    ]


def _emissions(placement: Placement) -> str:
    """Emissions of the whole job, or of an hour if its length is unknown; empty if not requested."""
    if placement.kg_co2e_per_hour is None:
        return ""
    whole = placement.kg_co2e
    return f"{placement.kg_co2e_per_hour:.3g} /h" if whole is None else f"{whole:,.3g}"


def _when(at: datetime, now: datetime) -> str:
    local = at.astimezone()
    return f"{local:%a %H:%M}" if (at - now).days < 6 else f"{local:%Y-%m-%d %H:%M}"


def _terms(console: Console, seen: Preview, limit: int, value: Money) -> list[RenderableType]:
    """The cost terms of each shown placement, and its ranking value if that is higher."""
    parts: list[RenderableType] = []
    for number, placement in enumerate(seen.in_order[:limit], 1):
        unit = " for one hour" if placement.duration is None else ""
        parts.append(
            Text.assemble(
                ("\n" if number == 1 else "", ""),
                (f"{number}. {placement.offer.pool}", "bold"),
                f": {formats.money(placement.expected_cost)}{unit},"
                f" {placement.throughput:.2g}× the reference throughput,"
                f" {formats.percent(placement.useful_fraction)} useful time,"
                f" {formats.rate(effective_price(placement))} per useful hour; price from {placement.offer.source}",
            )
        )
        columns = (Column("  term"), Column("USD", align="right"), Column("calculation", folds=True))
        beside = beside_the_cost(placement, value)
        cells = [[f"  {term.name}", formats.money(term.amount), term.how] for term in placement.terms]
        cells += [[f"  + {term.name}", formats.money(term.amount), term.how] for term in beside]
        if beside:
            cells.append(["  = ranking value", formats.money(weighed(placement)), "terms with + are weighed, not paid"])
        parts.append(fitting(console, columns, cells))
    return parts


def _note(note: str) -> Text:
    if note.startswith(_WARNING):
        return Text.assemble((_WARNING, "yellow"), note.removeprefix(_WARNING))
    return Text.assemble(("note: ", "cyan"), note)


def _rejections(seen: Preview, *, every: bool) -> Iterator[RenderableType]:
    """First the reasons that can be changed, by count; then those that the job itself sets, in one line unless
    ``every`` rejection is shown or there are no others."""
    total = sum(seen.counts.values())
    if not total:
        if not seen.plan.placements:
            yield Text("No offers are known. Run `gpubroker prices poll`.", style="yellow")
        return
    yield Text(f"\nRejected: {total:,} of {formats.plural(seen.plan.offers_seen, 'offer')}", style="bold")
    shown = {counted.reason: counted.examples for counted in explain(seen.plan, 3 if every else 1)}
    excluded = {reason: count for reason, count in seen.counts.items() if reason in EXCLUDED_BY_THE_JOB}
    decisive = {reason: count for reason, count in seen.counts.items() if reason not in excluded}
    folded = excluded if decisive and not every else {}
    for reason, count in (decisive if folded else decisive | excluded).items():
        number = f"{count:>8,} × "
        counted = Text.assemble((f"{number.strip()} ", "bold"), reason.text, (f"  [{reason.value}]", "dim"))
        yield hanging(counted, len(number) - len(number.strip()) - 1)
        for rejection in shown.get(reason, ()):
            detail = f": {rejection.detail}" if rejection.detail else ""
            yield hanging(Text(f"e.g. {rejection.offer_id}{detail}", style="dim"), len(number))
        yield hanging(Text.assemble(("fix: ", "cyan"), REMEDIES[reason]), len(number))
    if folded:
        kinds = ", ".join(f"{count:,} {reason.value}" for reason, count in folded.items())
        text = f"{sum(folded.values()):,} × excluded by the job itself ({kinds}); use --explain for examples"
        yield hanging(Text(text, style="dim"), 2)


def _verdict(seen: Preview, judged: str) -> list[RenderableType]:
    if seen.admission is None:
        kind = "the policies deny every feasible offer" if seen.exit_code == 3 else "no offer is feasible"
        return [Text.assemble(("No placement: ", "bold red"), f"{kind}.")]
    words_for = {
        Answer.ALLOW: ("Allowed", "bold green"),
        Answer.ASK: ("Approval needed", "bold yellow"),
        Answer.DENY: ("Denied", "bold red"),
    }
    label, style = words_for[seen.admission.answer]
    told = Text.assemble((label, style), f" {judged}." if judged else ".")
    if not judged:
        told.append(" No policy is active: owned and sandbox capacity only, nothing that costs cash.")
    parts: list[RenderableType] = [told]
    parts += [_objection(verdict) for verdict in seen.admission.objections]
    if seen.alternatives is not None and (passing := as_text(seen.alternatives, seen.admission)):
        parts.append(hanging(Text(passing, style="cyan"), 2))
    if seen.exit_code in (0, 6):  # no money is held for a job that cannot be submitted
        parts += _money(seen.admission, seen)
    return parts


def _objection(verdict: Verdict) -> Text:
    place = str(verdict.source)
    text = Text(f"  {verdict.message}" if place in verdict.message else f"  {verdict.message} ({place})")
    if verdict.approvers:
        text.append(f"\n  approvers: {', '.join(verdict.approvers)}")
    return text


def _money(admission: Admission, seen: Preview) -> list[RenderableType]:
    if not admission.money:
        return [Text("Money: nothing is held; this capacity is already paid for.")]
    longest = lasts(admission.money, seen.plan, seen.max_duration, seen.plan.made_at)
    first, *others = held_view.why(admission, seen)
    at_worst = f"At the most expensive fallback price it lasts {formats.length(longest)}. The unused part is released."
    shares = held_view.shares_of(seen.shares)
    if not shares and MoneyKind.SANDBOX in admission.money:
        shares = ["No budget counts simulated money; `counts: [sandbox]` in a budget does."]
    return [
        Text.assemble(("Money: ", "bold"), f"{first}."),
        *(hanging(Text(f"{line}."), 2) for line in others),
        *(hanging(Text(line), 2) for line in shares),
        hanging(Text(at_worst), 2),
    ]
