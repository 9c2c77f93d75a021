"""A plan and its verdict as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from broker.app.jobs.plan_documents import WARNING, PlacementResult, PlanJudge, PlanResult
from broker.app.jobs.reasons import EXCLUDED_BY_THE_JOB
from broker.cli.jobs.job_view import budget_share_lines, hold_coverage_text
from broker.cli.jobs.queue_view import free_line
from broker.cli.render import formats
from broker.cli.render.tables import Column, ValueColumn, build_cell_table, indent_text, table_parts
from broker.core.job.reasons import MISSING_SETUP
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import Answer
from broker.core.values.units import print_duration
from broker.reconciler.admission.hold_limits import HoldLimit

if TYPE_CHECKING:
    from broker.app.billing.budget_documents import HoldTerms
    from broker.app.documents import VerdictResult

_MAX_NOTES = 3  # shown unless all are asked for
_MAX_MACHINES = 4  # machines in the heading
_JUDGES = {PlanJudge.ACTIVE_POLICY: " by the active policy.", PlanJudge.POLICY_FILES: " by these policy files."}
_NO_POLICY = ". No policy is active: owned and sandbox capacity only, nothing that costs cash."
_ANSWERS = {
    Answer.ALLOW: ("Allowed", "bold green"),
    Answer.ASK: ("Approval needed", "bold yellow"),
    Answer.DENY: ("Denied", "bold red"),
}


def plan_screen(console: Console, plan_result: PlanResult, *, explain: bool = False) -> Iterator[RenderableType]:
    """The whole plan: job, placements, verdict, money, notes. ``explain``: also every cost term and rejection."""
    yield _heading(plan_result)
    shown_notes = [*plan_result.notes, *plan_result.remarks] if explain else plan_result.notes[:_MAX_NOTES]
    yield from (_note(note) for note in shown_notes if note.startswith(WARNING))
    if plan_result.placements:
        yield from _placements(console, plan_result, plan_result.placements, plan_result.feasible)
        if explain:
            yield from _terms(console, plan_result.placements)
    elif plan_result.estimate:
        yield Text("Estimate only: no job can be started there with the present setup.", style="yellow")
        yield from _placements(console, plan_result, plan_result.estimate, plan_result.estimated)
    yield from _missing(plan_result)
    if explain or not plan_result.placements:
        yield from _rejections(plan_result, shows_all=explain)
    yield from _verdict(plan_result)
    yield from (_note(note) for note in shown_notes if not note.startswith(WARNING))
    offers = [item.offer for item in plan_result.placements]
    shared_names = {f"{item.provider}/{item.zone or item.region}/{item.instance_type}" for item in offers}
    yield from (free_line(item) for item in plan_result.machines if item.name in shared_names)
    if plan_result.waits_for_own_machines:
        yield Text("waiting: other jobs use the matching capacity; this job starts when a machine is free")
    if not explain and plan_result.placements and plan_result.rejected:
        hidden_count = len(plan_result.notes) - len(shown_notes)
        hidden_text = f", {formats.plural(hidden_count, 'more note')}" if hidden_count else ""
        offers_text = formats.plural(plan_result.rejected, "offer")
        yield Text(f"{offers_text} rejected{hidden_text}; `plan --explain` shows them", style="dim")


def _missing(plan_result: PlanResult) -> Iterator[Text]:
    """What is missing in setup, each with its fix, and the command that walks through all of it."""
    if plan_result.missing:
        provider = (plan_result.estimate or plan_result.placements)[0].offer.provider
        yield Text(f"missing for jobs on {provider}:", style="yellow")
        yield from (Text.assemble(f"  {setup.message}: ", (setup.fix, "cyan")) for setup in plan_result.missing)
        yield Text.assemble("  or: ", (f"gpubroker setup {provider}", "cyan"))
    elif plan_result.estimate:
        reasons = [reason for reason in plan_result.reasons if reason.reason in MISSING_SETUP]
        texts = "; ".join(f"{reason.text}: {reason.what_would_change_it}" for reason in reasons)
        yield Text.assemble(("missing: ", "yellow"), texts)


def _heading(plan_result: PlanResult) -> Text:
    job = plan_result.job
    machine_names = list(dict.fromkeys(job.machines))
    shown_names, hidden_count = machine_names[:_MAX_MACHINES], len(machine_names) - _MAX_MACHINES
    machines = (
        " or ".join([*shown_names, f"{hidden_count} others"] if hidden_count > 0 else shown_names)
        or "a model to be sized"
    )
    nodes = f"{job.nodes} × " if job.nodes > 1 else ""
    text = Text.assemble((job.name, "bold"), f": {nodes}{machines}")
    if plan_result.work_left is not None:
        text.append(f", {formats.length(plan_result.work_left)} of work{f' on {job.work_on}' if job.work_on else ''}")
    if plan_result.deadline is not None:
        time_left = formats.length(plan_result.deadline - plan_result.made_at)
        text.append(f", deadline {formats.moment(plan_result.deadline)} (in {time_left})")
    unasked = "" if job.max_duration is not None else " (no `max_duration` is given)"
    text.append(f", stopped after {formats.length(plan_result.max_duration)} of machine time{unasked}")
    rows = plan_result.placements or plan_result.estimate
    if plan_result.max_cost is not None and any(row.offer.money is not MoneyKind.AMORTISED for row in rows):
        text.append(f" or {formats.money(plan_result.max_cost)}")
    return text


def _placements(
    console: Console, plan_result: PlanResult, rows: Sequence[PlacementResult], count: int
) -> list[RenderableType]:
    columns: tuple[ValueColumn[PlacementResult], ...] = (
        ValueColumn("#", lambda placement: str(placement.rank), align="right"),
        ValueColumn("location", lambda row: f"{row.offer.provider}/{row.offer.zone or row.offer.region}"),
        ValueColumn("machine", _machine_text),
        ValueColumn("machine type", lambda row: row.offer.instance_type, 4),
        ValueColumn("purchase type", lambda row: formats.purchase_type(row.offer.capacity_type)),
        ValueColumn("cost", _cost, align="right"),
        ValueColumn("$/h", lambda row: formats.rate(row.rate_per_hour), 2, "right"),
        ValueColumn("duration", lambda row: formats.length(row.duration), 3, "right"),
        ValueColumn("finish", lambda row: _finish(row.finish, plan_result.made_at), 1),
        ValueColumn("interruptions/h", _interruptions, 5, "right"),
        ValueColumn("useful time", lambda row: formats.percent(row.useful_fraction), 6, "right"),
        ValueColumn("kg CO2e", _emissions, 1, "right"),
        ValueColumn("price", _price, 7),
    )
    matching = "match" if plan_result.placements else "would match if the setup allowed it"
    summary = f"{count:,} of {formats.plural(plan_result.offers_seen, 'offer')} {matching}"
    if over_count := plan_result.over_max_cost:
        summary += f", {over_count:,} of them above the job's max_cost of {formats.money(plan_result.max_cost)}"
    summary += ", ".join(("; costs are estimates", *plan_result.basis))
    if not plan_result.placements and plan_result.work_left is None:  # else a note says so
        summary += "; ranked by the price of a useful hour"
    if count > len(rows):
        summary += f"; the best {len(rows)} are shown"
    return table_parts(console, columns, rows, summary)


def _machine_text(placement: PlacementResult) -> str:
    offer = placement.offer
    machine = f"{offer.accelerator}:{offer.count}" if offer.accelerator else "cpu"
    return f"{placement.nodes} × {machine}" if placement.nodes > 1 else machine


def _cost(placement: PlacementResult) -> Text:
    if placement.longest_cost is not None:
        return Text(f"up to {formats.money(placement.longest_cost)}", style="bold")
    return Text(f"{formats.money(placement.expected_cost)}{'' if placement.duration else ' /h'}", style="bold")


def _finish(at: datetime | None, now: datetime) -> str:
    if at is None:
        return "not known"
    local = at.astimezone()
    return f"{local:%a %H:%M}" if (at - now).days < 6 else f"{local:%Y-%m-%d %H:%M}"


def _interruptions(placement: PlacementResult) -> str:
    return f"{placement.interruptions_per_hour:.1%}" if placement.interruptions_per_hour else "never"


def _emissions(placement: PlacementResult) -> str:
    """Emissions of the whole job, or of an hour if its length is unknown; empty if not requested."""
    if placement.kg_co2e_per_hour is None:
        return ""
    return f"{placement.kg_co2e_per_hour:.3g} /h" if placement.kg_co2e is None else f"{placement.kg_co2e:,.3g}"


def _price(placement: PlacementResult) -> str:
    notes = ["reference"] if placement.offer.reference else []
    notes += ["simulated"] if placement.offer.money is MoneyKind.SANDBOX else []
    return ", ".join(notes) or f"{formats.age(placement.offer.age_seconds)} old"


def _terms(console: Console, placements: Sequence[PlacementResult]) -> Iterator[RenderableType]:
    """The cost terms of each placement, and its ranking value if that is higher."""
    columns = (Column("  term"), Column("USD", align="right"), Column("calculation", folds=True))
    for placement in placements:
        yield Text.assemble(
            ("\n" if placement.rank == 1 else "", ""),
            (f"{placement.rank}. {placement.offer.pool}", "bold"),
            f": {formats.money(placement.expected_cost)}{' for one hour' if placement.duration is None else ''},"
            f" {placement.throughput:.2g}× the reference throughput,"
            f" {formats.percent(placement.useful_fraction)} useful time,"
            f" {formats.rate(placement.price_per_useful_hour)} per useful hour; price from {placement.offer.source}",
        )
        cells = [[f"  {term.name}", formats.money(term.amount), term.how] for term in placement.terms]
        cells += [[f"  + {term.name}", formats.money(term.amount), term.how] for term in placement.ranking_terms]
        if placement.ranking_terms:
            cells.append(
                ["  = ranking value", formats.money(placement.ranked_by), "terms with + affect the ranking only"]
            )
        yield build_cell_table(console, columns, cells)


def _note(note: str) -> Text:
    if note.startswith(WARNING):
        return Text.assemble((WARNING, "yellow"), note.removeprefix(WARNING))
    return Text.assemble(("note: ", "cyan"), note)


def _rejections(plan_result: PlanResult, *, shows_all: bool) -> Iterator[RenderableType]:
    """First the reasons that can be changed, those of the most suitable offers first; then those that the job itself
    sets, in one line unless ``shows_all`` rejection is shown or there are no others."""
    if not plan_result.rejected:
        if not plan_result.placements:
            yield Text("No offers are known. Run `gpubroker prices poll`.", style="yellow")
        return
    yield Text(
        f"\nRejected: {plan_result.rejected:,} of {formats.plural(plan_result.offers_seen, 'offer')}", style="bold"
    )
    excluded = [
        rejection
        for rejection in plan_result.reasons
        if rejection.reason in EXCLUDED_BY_THE_JOB and not rejection.alone
    ]
    decisive = [rejection for rejection in plan_result.reasons if rejection not in excluded]
    folded = excluded if decisive and not shows_all else []
    for rejection in decisive if folded else [*decisive, *excluded]:
        number = f"{rejection.count:>8,} × "
        heading = Text.assemble(
            (f"{number.strip()} ", "bold"), rejection.text, (f"  [{rejection.reason.value}]", "dim")
        )
        yield indent_text(heading, len(number) - len(number.strip()) - 1)
        for rejected_example in rejection.examples if shows_all else rejection.examples[:1]:
            detail = f": {rejected_example.detail}" if rejected_example.detail else ""
            yield indent_text(Text(f"e.g. {rejected_example.offer}{detail}", style="dim"), len(number))
        yield indent_text(Text.assemble(("fix: ", "cyan"), rejection.what_would_change_it), len(number))
    if folded:
        kinds = ", ".join(f"{rejection.count:,} {rejection.reason.value}" for rejection in folded)
        total_text = f"{sum(rejection.count for rejection in folded):,} × excluded by the job itself"
        yield indent_text(Text(f"{total_text} ({kinds}); use --explain for examples", style="dim"), 2)


def _verdict(plan_result: PlanResult) -> Iterator[RenderableType]:
    verdict = plan_result.verdict
    if verdict.answer is None:
        kind = "the policies deny every feasible offer" if plan_result.exit_code == 3 else "no offer is feasible"
        yield Text.assemble(("No placement: ", "bold red"), f"{kind}.")
        return
    yield Text.assemble(_ANSWERS[verdict.answer], _JUDGES[verdict.judged_by] if verdict.judged_by else _NO_POLICY)
    yield from map(_objection, verdict.objections)
    if verdict.would_pass:
        yield indent_text(Text(verdict.would_pass, style="cyan"), 2)
    if plan_result.exit_code in (0, 6):  # no money is held for a job that cannot be submitted
        yield from _money(plan_result)


def _objection(verdict: VerdictResult) -> Text:
    source = verdict.source
    line_text = Text(f"  {verdict.message}" if source in verdict.message else f"  {verdict.message} ({source})")
    if verdict.approvers:
        line_text.append(f"\n  approvers: {', '.join(verdict.approvers)}")
    return line_text


def _money(plan_result: PlanResult) -> Iterator[RenderableType]:
    if not plan_result.hold:
        yield Text("Money: nothing is held; this capacity is already paid for.")
        return
    first_text, *other_texts = (_hold_text(terms, plan_result) for terms in plan_result.hold_terms)
    yield Text.assemble(("Money: ", "bold"), f"{first_text}.")
    yield from (indent_text(Text(f"{line_text}."), 2) for line_text in other_texts)
    shares = budget_share_lines(plan_result.budget_shares)
    if not shares and MoneyKind.SANDBOX in plan_result.hold:
        shares = ["No budget counts simulated money; `counts: [sandbox]` in a budget does."]
    yield from (indent_text(Text(line_text), 2) for line_text in shares)
    longest = formats.length(plan_result.hold_lasts)
    yield indent_text(Text(f"At the most expensive fallback price it lasts {longest}. The unused part is released."), 2)


def _hold_text(terms: HoldTerms, plan_result: PlanResult) -> str:
    """Money of one kind that is held: for how long, at which rate, and which limit of the job decides the amount."""
    duration = terms.until - terms.start
    initial_amount = terms.held - terms.rate_per_hour.for_duration(duration)
    payment_text = f"for up to {formats.length(duration)} from now at up to {formats.rate(terms.rate_per_hour)}/h"
    if initial_amount.micros >= 10_000:
        payment_text += f", and {formats.money(initial_amount)} at the start for moving data"
    amount = f"{formats.money(terms.held)} {terms.money.value}"
    return f"{amount} is held at submission, {payment_text}; {_limit_text(terms, plan_result)}"


def _limit_text(terms: HoldTerms, plan_result: PlanResult) -> str:
    longest = print_duration(plan_result.max_duration)
    if terms.limited_by is HoldLimit.MAX_COST:
        return f"limited by max_cost ({formats.money(plan_result.max_cost)}), before max_duration ({longest})"
    if terms.limited_by is HoldLimit.SESSION:
        return f"more is held while the session runs, for {longest} at most"
    if terms.limited_by is HoldLimit.EXPECTED and terms.quantile is not None:
        return f"{hold_coverage_text(terms.quantile)}, for {longest} at most"
    limit_name = "max_duration" if plan_result.job.max_duration is not None else "the default max_duration"
    return f"limited by {limit_name} ({longest} plus the time to stop)"
