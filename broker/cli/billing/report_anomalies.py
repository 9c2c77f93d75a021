"""`gpubroker report anomalies`: spending of teams that the weeks before do not explain, and people's answers about
it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput, UnknownName

if TYPE_CHECKING:
    from broker.app.results.anomalies import SpendingIncidentResult

EXAMPLES = examples(
    "gpubroker report anomalies",
    "gpubroker report anomalies --team nlp --json",
    "gpubroker report anomalies --team nlp --day 2026-11-20 --answer planned",
)


def anomalies(
    context: typer.Context,
    team: Annotated[str | None, typer.Option("--team", metavar="TEAM", help="Only this team.")] = None,
    day: Annotated[
        str | None, typer.Option("--day", metavar="DAY", help="With --answer: the first day of the incident, in UTC.")
    ] = None,
    answer: Annotated[
        str | None, typer.Option("--answer", metavar="WORD", help="Was it an anomaly? yes, no or planned.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept with the answer.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show days of the last month on which a team spent more than the weeks before explain, and the jobs behind it.

    Today is judged by its spending so far. Recipients get one notice per incident. Planned days are left out when later
    days are judged; answers change nothing else. The jobs' owners, the team's administrators and administrators may
    answer.
    """
    from broker.app.billing import anomalies as found_anomalies
    from broker.app.results.anomalies import IncidentList
    from broker.finops.anomalies import AnomalyAnswer

    terminal = Terminal.of(context)
    if (answer is None) != (day is None) or (answer is not None and team is None):
        raise InvalidInput("an answer needs a team and a day", where="--answer", hint="see the examples of --help")
    broker = terminal.broker()
    if answer is not None and day is not None and team is not None:
        if answer not in list(AnomalyAnswer):
            raise UnknownName("answer", answer, list(AnomalyAnswer), where="--answer")
        try:
            first = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).date()
        except ValueError as error:
            raise InvalidInput(f"expected a day such as 2026-11-20, found {day!r}", where="--day") from error
        said = AnomalyAnswer(answer)
        incidents = [found_anomalies.answer(broker, team, first, said, reason, by=terminal.actor)]
    else:
        incidents = found_anomalies.spending_anomalies(broker, None if team is None else {team})
    result = IncidentList.of(incidents)
    if as_json:
        terminal.answer(result)
        return
    none = "no day of the last month had more spending than the weeks before explain"
    terminal.show(*([line for one in result.incidents for line in _lines(one)] or [none]))


def _lines(one: SpendingIncidentResult) -> list[str]:
    from broker.cli.render import formats

    days = f"{one.first}" if one.first == one.last else f"{one.first} to {one.last}"
    state = ", still going on" if one.running else ""
    lines = [f"{one.team}, {days}{state}: {formats.money(one.spent)}, {formats.money(one.excess)} above what is usual"]
    lines.append(
        f"  {formats.money(one.on_own)} of it on owned and reserved machines, {formats.money(one.rented)} rented"
    )
    lines += [f"  {cause.job} of {cause.user}: {formats.money(cause.excess)} more" for cause in one.causes]
    if one.answer is not None:
        reason = f": {one.answer.reason}" if one.answer.reason else ""
        lines.append(f"  answered {one.answer.answer.value} by {one.answer.by}{reason}")
    return lines
