"""No job that runs longer than so long, over all its attempts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, RootModel

from broker.core.policy import Action, ActionKind, Facts, Source, Verdict
from broker.core.units import PositiveDuration
from policies.scope import Scope
from policies.verdicts import allow, deny, length, out_of_scope


class Length(RootModel[PositiveDuration]):
    """The longest billed time of one job over all its attempts, such as ``48h``."""

    model_config = ConfigDict(frozen=True)


@dataclass(frozen=True, eq=False)
class MaxJobDuration:
    """Denies a job whose ``max_duration`` is longer. One that runs is stopped at the limit."""

    kind: ClassVar[str] = "max_job_duration"
    Config: ClassVar[type[BaseModel]] = Length

    name: str
    config: Length
    scope: Scope
    source: Source

    def judge(self, action: Action, facts: Facts) -> Verdict:
        if not self.scope.covers(action):
            return out_of_scope(self)
        limit = self.config.root
        if action.kind is ActionKind.CONTINUE:
            if action.elapsed < limit:
                return allow(self, "within_limit", f"at most {length(limit)} a job")
            return self._deny("job_duration_reached", "it has run for", action.elapsed)
        if action.window is None:
            return allow(self, "no_duration_yet", "judges whole submissions, not single placements")
        asked = action.elapsed + (action.window[1] - action.window[0])
        if asked <= limit:
            return allow(self, "within_limit", f"at most {length(limit)} a job")
        return self._deny("job_too_long", "it may run for", asked)

    def _deny(self, code: str, said: str, taken: timedelta) -> Verdict:
        limit = self.config.root
        hint = "" if code == "job_duration_reached" else "; max_duration in the job file sets less"
        return deny(
            self,
            code,
            f"{said} {length(taken)}, the limit is {length(limit)} a job{hint}",
            duration=length(taken),
            limit=length(limit),
        )
