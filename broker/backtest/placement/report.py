"""The result of a backtest."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from broker.backtest.placement.replay import ReplayOutcome
from broker.economics.units import quantile


@dataclass(frozen=True, slots=True)
class ReplayWindow:
    """One replay: its first tick in the trace, the optimum's cost in USD, and the outcome; None for the omniscient
    optimum itself, of which only the cost is known."""

    start: int
    optimum: float
    cost: float
    outcome: ReplayOutcome | None


@dataclass(frozen=True, slots=True)
class PlacementCell:
    """One policy on one pool (or set of pools) at one deadline and changeover, over its windows.

    ``ratio_mean``: mean cost / mean optimum; ``ratio_p95``: 95th percentile of the windows' own ratios; ``missed``:
    windows that ended late; ``on_demand_share``: part of billed time; ``interruptions``: mean per window. The last two
    are None for the optimum. ``together``: how many pools the job could choose between.
    """

    family: str
    pool: str
    deadline_s: float
    changeover_s: float
    policy: str
    windows: tuple[ReplayWindow, ...]
    together: int = 1

    @property
    def ratio_mean(self) -> float:
        return sum(w.cost for w in self.windows) / sum(w.optimum for w in self.windows)

    @property
    def ratio_p95(self) -> float:
        return quantile([w.cost / w.optimum for w in self.windows], 0.95)

    @property
    def missed(self) -> int:
        return sum(w.outcome.missed for w in self.windows if w.outcome)

    @property
    def on_demand_share(self) -> float | None:
        outcomes = [w.outcome for w in self.windows if w.outcome]
        billed = sum(outcome.billed_seconds for outcome in outcomes)
        return sum(outcome.on_demand_seconds for outcome in outcomes) / billed if billed else None

    @property
    def interruptions(self) -> float | None:
        outcomes = [w.outcome for w in self.windows if w.outcome]
        return sum(outcome.interruptions for outcome in outcomes) / len(outcomes) if outcomes else None


@dataclass(frozen=True, slots=True)
class PlacementReport:
    """Every cell, and caveats. ``work_s`` and ``seed`` as requested; ``gang``: the machines of a job, all included in
    the costs.
    """

    work_s: float
    seed: int
    cells: tuple[PlacementCell, ...]
    notes: tuple[str, ...] = ()
    gang: int = 1

    def families(self) -> tuple[PlacementCell, ...]:
        """The pools of each family combined, in the order of the cells; ``pool`` gives their number."""
        return self._pooled(lambda cell: (cell.family, cell.deadline_s, cell.changeover_s, cell.policy))

    def everywhere(self) -> tuple[PlacementCell, ...]:
        """All pools combined, in the order of the cells; without a family."""
        cells = self._pooled(lambda cell: (cell.deadline_s, cell.changeover_s, cell.policy))
        return tuple(replace(cell, family="") for cell in cells)

    def policies(self) -> tuple[tuple[PlacementCell, ...], ...]:
        """The cells of each policy, in their order."""
        names = dict.fromkeys(cell.policy for cell in self.cells)
        return tuple(tuple(cell for cell in self.cells if cell.policy == name) for name in names)

    def _pooled(self, key: Callable[[PlacementCell], Hashable]) -> tuple[PlacementCell, ...]:
        groups: dict[Hashable, list[PlacementCell]] = {}
        for cell in self.cells:
            groups.setdefault(key(cell), []).append(cell)
        return tuple(replace(pooled(cells), pool=_how_many(cells)) for cells in groups.values())


def pooled(cells: Sequence[PlacementCell]) -> PlacementCell:
    """The windows of all these cells as one, named as the first. As in every cell, its ratio is mean cost / mean
    optimum. Raises IndexError without cells."""
    return replace(cells[0], windows=tuple(window for cell in cells for window in cell.windows))


def _how_many(cells: Sequence[PlacementCell]) -> str:
    if len(cells) == 1 and cells[0].together > 1:
        return f"{cells[0].together} pools together"
    return "1 pool" if len(cells) == 1 else f"{len(cells)} pools"
