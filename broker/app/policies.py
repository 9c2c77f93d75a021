"""Policy files: read them, check them, make them the active set, see what is active."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol, cast

from broker.app.market import market_for
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.core.jobs import Job
from broker.core.money import Money
from broker.core.policy import BudgetUse, Source
from broker.core.ports import BudgetSpec, PolicySet
from broker.launch.admission import Admission, admit, facts_of
from broker.launch.journal import Reading
from broker.ledger.budgets import budget_uses, period_containing
from broker.placement.planner import make_plan
from broker.store import PolicyVersion

_SUFFIXES = (".yaml", ".yml")
_MAX_BYTES = 1_000_000


def read_files(paths: Iterable[Path]) -> dict[str, str]:
    """The texts of policy files by name; folders stand for the YAML files in them, sorted.

    Raises `InvalidInput` for what cannot be read, for an empty folder, and for two files of one name.
    """
    texts: dict[str, str] = {}
    for path in paths:
        found = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES) if path.is_dir() else [path]
        if not found:
            raise InvalidInput("no policy files (*.yaml) in this folder", where=str(path))
        for file in found:
            if str(file) in texts:
                continue
            try:
                if file.stat().st_size > _MAX_BYTES:
                    raise InvalidInput(
                        f"too large for a policy file; the limit is {_MAX_BYTES:,} bytes", where=str(file)
                    )
                texts[str(file)] = file.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise InvalidInput("not a text file in UTF-8", where=str(file)) from error
            except OSError as error:
                raise InvalidInput(f"cannot be read: {error.strerror}", where=str(file)) from error
    return texts


def check(broker: Broker, paths: Sequence[Path]) -> PolicySet:
    """The set that the files make. Raises `InvalidInput` with every finding. Changes nothing."""
    return broker.registries.load_policies(read_files(paths))


def apply(broker: Broker, paths: Sequence[Path], note: str = "") -> tuple[PolicyVersion, str]:
    """Make the files the active set; the new version and the difference from the one before, as a unified diff.

    A set that does not load is not activated, and the last good one goes on. The same set again changes nothing.
    """
    files = read_files(paths)
    broker.registries.load_policies(files)
    before = broker.store.active_policy()
    version = broker.store.activate_policy(files, by=broker.user, note=note)
    return version, difference(before.files if before else {}, files)


def adopt(broker: Broker) -> PolicyVersion | None:
    """An empty personal store takes up the policy files that ``GPUBROKER_POLICY`` names; None if there is nothing to
    adopt. A store that has (or ever had) an active set is changed by `apply` alone."""
    if not broker.settings.policy or broker.store.active_policy() is not None:
        return None
    paths = [Path(part).expanduser() for part in broker.settings.policy.split(":") if part]
    version, _ = apply(broker, paths, note="adopted from GPUBROKER_POLICY")
    return version


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """What changed between two sets of files, as one unified diff."""
    lines: list[str] = []
    for name in sorted({*before, *after}):
        old, new = before.get(name, "").splitlines(), after.get(name, "").splitlines()
        lines += difflib.unified_diff(old, new, f"{name} (before)", f"{name} (after)", lineterm="", n=2)
    return "\n".join(lines)


class _BudgetTerms(Protocol):
    """What a rule of the kind ``budget`` is configured with."""

    amount: Money


class _BudgetRule(Protocol):
    """What a rule of the kind ``budget`` has beside what every rule has."""

    spec: BudgetSpec
    config: _BudgetTerms
    source: Source


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """A budget of the active set and its state in the current period. Money in USD."""

    spec: BudgetSpec
    limit: Money
    source: Source
    use: BudgetUse

    @property
    def left(self) -> Money:
        """What may still be held or spent in the period; negative when later charges overdrew it."""
        return self.limit - self.use.spent - self.use.held


def budgets(broker: Broker) -> list[BudgetLine]:
    """Every budget of the active set, in file order."""
    rules = [cast(_BudgetRule, rule) for rule in broker.policy().rules if rule.kind == "budget"]
    with broker.store.reading() as look:
        return [
            BudgetLine(rule.spec, rule.config.amount, rule.source, budget_state(broker, look, rule.spec))
            for rule in rules
        ]


def explain(broker: Broker, job: Job, policy: PolicySet | None = None) -> Admission | None:
    """Every rule's verdict on the placement that would be best if no policy turned any down, with all its money.

    None when the market alone leaves nothing. ``policy``: for what-if questions; the active set otherwise.
    """
    chosen, market, now = policy or broker.policy(), market_for(broker, job, policy), broker.clock.now()
    max_duration = job.max_duration or chosen.defaults.max_duration
    conditions = replace(market.conditions, allow_reference_prices=True)
    plan = make_plan(job, market.offers, now=now, submitted_at=now, conditions=conditions)
    if not plan.placements:
        return None
    with broker.store.reading() as look:
        facts_for = facts_of(look, chosen, now)
        return admit(job, broker.user, plan, chosen, facts_for, max_duration=max_duration, now=now)


def budget_state(broker: Broker, look: Reading, budget: BudgetSpec) -> BudgetUse:
    """What a budget has spent and holds in its current period."""
    now = broker.clock.now()
    window = period_containing(budget.period, budget.timezone, now)
    return budget_uses(budget, window, now, partial(look.spent, budget), look.open_holds(budget))[0]
