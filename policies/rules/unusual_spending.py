"""Stops jobs that cause an anomaly of their team's spending, unless a person explains it in time."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from pydantic import BaseModel, Field

from broker.core.policy.facts import Fact
from broker.core.policy.policy import Action, ActionKind, Facts, Verdict
from broker.core.values.units import Duration
from policies.bound_rule import BoundRule
from policies.fields import Limit, PolicyPart
from policies.verdicts import allow, deny, length


class UnusualSpendingLimit(PolicyPart):
    """A running job may spend at most ``above`` more than it usually does while its team's spending of the day is an
    anomaly. People are notified first: the job stops ``answer_within`` (default ``1h``) after the anomaly was found,
    unless a person answers that it is no anomaly or was planned; and at once if a person confirms it.
    """

    above: Limit = Field(description="an amount such as $50")
    answer_within: Duration = timedelta(hours=1)


class UnusualSpendingRule(BoundRule[UnusualSpendingLimit]):
    """Stops a running job that is among the causes of an unanswered anomaly, checkpoint first."""

    kind: ClassVar[str] = "unusual_spending"
    Config: ClassVar[type[BaseModel]] = UnusualSpendingLimit
    # Callers must provide the job's part in anomalies (`Facts.unusual`).
    needs_anomalies: ClassVar[bool] = True
    never_asks: ClassVar[str] = (
        "does not apply to unusual_spending, which asks whether spending was planned; delete `action`"
    )

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if action.kind is not ActionKind.CONTINUE:
            return allow(self, "does_not_run", "judges running jobs")
        found, limit = facts.unusual, self.config.above
        if found is None:
            return allow(self, "usual", "is in no unexplained anomaly")
        spent, most = found.excess.rounded(2), limit
        said = f"the job spent {spent} above its usual in an anomaly of its team; the limit is {most}"
        figures = {"excess": found.excess, "limit": limit, "known_since": found.known_since.isoformat()}
        if found.excess <= limit:
            return allow(self, "within_limit", said, **figures)
        if found.said_by:
            return deny(self, "unusual", f"{said}, and {found.said_by} said that it is one", **figures)
        stops = found.known_since + self.config.answer_within
        if facts.now < stops:
            return allow(self, "awaits_answer", f"{said}; it stops at {stops:%Y-%m-%d %H:%M} UTC", **figures)
        waited = length(facts.now - found.known_since)
        message = f"{said}, and it was not answered within {waited} (`gpubroker report anomalies --answer`)"
        return deny(self, "unusual", message, **figures)

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return ()  # no approval involved
