"""The cost of served tokens, from the ledger's cost of each hour of an attempt. Pure; whole micro-dollars.

Method ``gpubroker-tokens-1``: an hour's cost is busy for the share of time in which the server worked on requests, and
idle for the rest. Busy cost is divided among models, and into input and output, by the seconds that their requests took
to be read and to be answered; where a server measures no seconds, by tokens, and a generated one counts as four. Cached
tokens cost nothing. Input is divided among tenants by tokens that were not cached, output by generated ones. Idle cost
is divided among the attempt's models as their busy cost in the period. Remainders go to the largest fractions, so all
parts add up to the ledger's cost.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from operator import itemgetter
from typing import Any

from broker.core.events.agent_events import ServedModel, TokensServed
from broker.core.values.money import Money
from broker.ledger.entries import amount_within
from broker.ledger.finops.change import NOBODY, divide_by_weights
from broker.ledger.finops.showback import IDLE

METHOD = "gpubroker-tokens-1"
_OUTPUT_WEIGHT = 4
_MILLION = 1_000_000
_MICROSECOND = timedelta(microseconds=1)
_BEGINS = itemgetter(0)
_MILLISECOND = timedelta(milliseconds=1)

Tokens = tuple[int, int, int]
"""Tokens that were read and not cached, read and cached, and generated."""
TenantTokens = Mapping[tuple[date, str], Mapping[str, Tokens]]
"""By day (UTC) and model, what a proxy in front of the servers counted for each tenant."""


@dataclass(frozen=True, slots=True)
class ServedAttempt:
    """An attempt that serves: its cost in a period (USD), and what it counted, each with the cost of that time."""

    job_id: str
    cost: Money
    hours: Sequence[tuple[TokensServed, Money]]

    @property
    def tokens(self) -> int:
        """All tokens that it read and generated."""
        return sum(model.input + model.output for hour, _ in self.hours for model in hour.models)


Stretch = tuple[int, int, TokensServed]
"""A count and its time, in microseconds since the start of a period."""


def timeline(counts: Iterable[TokensServed], start: datetime, end: datetime) -> list[Stretch]:
    """The counts and their times in the period; time that was counted before does not count again."""
    stretches, counted_to, last = list[Stretch](), 0, (end - start) // _MICROSECOND
    for count in counts:
        begins = min(max((count.since - start) // _MICROSECOND, counted_to), last)
        counted_to = min(max((count.until - start) // _MICROSECOND, begins), last)
        stretches.append((begins, counted_to, count))
    return stretches


def parts_within(micros: int, since: int, until: int, stretches: Sequence[Stretch]) -> Iterator[tuple[int, int]]:
    """The parts of an amount for that time (microseconds since the same start), each with its stretch's index."""
    first = max(bisect_right(stretches, since, key=_BEGINS) - 1, 0)
    for index in range(first, bisect_right(stretches, until, key=_BEGINS)):
        yield index, amount_within(micros, since, until, *stretches[index][:2])


def served_attempt(
    job_id: str, stretches: Sequence[Stretch], spent: Sequence[tuple[int, int, int]], length: int
) -> ServedAttempt:
    """An attempt in a period of ``length`` microseconds. ``spent``: the ledger's amounts (micro-dollars), and from when
    until when each is."""
    costs = [0] * len(stretches)
    for entry in spent:
        for index, part in parts_within(*entry, stretches):
            costs[index] += part
    hours = [(count, Money(micros)) for (_, _, count), micros in zip(stretches, costs, strict=True)]
    return ServedAttempt(job_id, Money(sum(amount_within(*entry, 0, length) for entry in spent)), hours)


@dataclass(frozen=True, slots=True)
class TenantCost:
    """The tokens of a tenant, ``cached`` among those of ``input``, and their busy cost (USD)."""

    tenant: str
    input: int
    cached: int
    output: int
    input_cost: Money
    output_cost: Money


@dataclass(frozen=True, slots=True)
class ModelCost:
    """The tokens of a model and their cost (USD), the sum of busy cost for input and output, and of idle cost.
    ``per_million``: the whole cost over all tokens; ``per_million_input``, ``per_million_output``: busy cost over
    tokens that were not cached, and over generated ones; null without any. ``by_weights``: some of the busy cost was
    divided by tokens, as the server measures no seconds. A model is empty where the server does not name it."""

    model: str
    input: int
    cached: int
    output: int
    cost: Money
    input_cost: Money
    output_cost: Money
    idle_cost: Money
    per_million: Money | None
    per_million_input: Money | None
    per_million_output: Money | None
    by_weights: bool
    tenants: tuple[TenantCost, ...]


def busy_parts(micros: int, served: TokensServed) -> dict[tuple[str, bool], int]:
    """The busy part of the cost of that time by model and whether it is for output; what is left is idle."""
    length, weights = (served.until - served.since) // _MILLISECOND, dict[tuple[str, bool], int]()
    for model in served.models:
        uncached, _, output = _tokens(model)
        by_tokens = uncached, _OUTPUT_WEIGHT * output
        input_weight, output_weight = by_tokens if is_weighted(served) else (model.input_ms, model.output_ms)
        weights[model.model, False] = input_weight if uncached else 0
        weights[model.model, True] = output_weight if output else 0
    if length <= 0 or not any(weights.values()):
        return {}
    busy = min(served.busy_ms, length)
    return dict(zip(weights, _divide(_divide(micros, [busy, length - busy])[0], weights.values()), strict=True))


def is_weighted(served: TokensServed) -> bool:
    """Whether a model has tokens, but no seconds in which they were read or generated."""
    return any(
        (model.input > model.cached or model.output)
        and not (model.input_ms * (model.input > model.cached) + model.output_ms * (model.output > 0))
        for model in served.models
    )


def model_costs(attempts: Sequence[ServedAttempt], tenants: TenantTokens) -> tuple[ModelCost, ...]:
    """By model, highest cost first; the sum of their costs is that of the attempts."""
    totals = defaultdict[tuple[date, str], list[int]](lambda: [0] * 3)
    for attempt in attempts:
        for hour, _ in attempt.hours:
            for model in hour.models:
                _add(totals[hour.since.date(), model.model], _tokens(model))
    rows, idle, weighted = defaultdict[str, dict[str, list[int]]](dict), Counter[str](), set[str]()
    for attempt in attempts:
        busy, tokens = Counter[str](), Counter[str]()
        for hour, cost in attempt.hours:
            parts = busy_parts(cost.micros, hour)
            for model in hour.models:
                key = hour.since.date(), model.model
                money = [parts.get((model.model, is_output), 0) for is_output in (False, True)]
                for tenant, *columns in _by_tenant(_tokens(model), money, tenants.get(key, {}), totals[key]):
                    _add(rows[model.model].setdefault(tenant, [0] * 5), columns)
                busy[model.model] += sum(money)
                tokens[model.model] += model.input + model.output
                weighted |= {model.model} if is_weighted(hour) else set()
        idle.update(_idle_parts(attempt.cost.micros - sum(busy.values()), busy, tokens))
    costs = [_model_cost(model, rows[model], idle[model], model in weighted) for model in {*idle, *rows}]
    return tuple(sorted(costs, key=lambda cost: (-cost.cost.micros, cost.model)))


def _tokens(model: ServedModel) -> Tokens:
    cached = min(model.cached, model.input)
    return model.input - cached, cached, model.output


def _add(total: list[int], more: Sequence[int]) -> None:
    total[:] = map(sum, zip(total, more, strict=True))


def _divide(amount: int, weights: Iterable[int]) -> list[int]:
    weights = list(weights)
    return divide_by_weights(amount, weights) if any(weights) else [0] * len(weights)


def _by_tenant(
    tokens: Tokens, money: Sequence[int], counted: Mapping[str, Tokens], total: Sequence[int]
) -> Iterator[tuple[Any, ...]]:
    """Tenants with their part of the tokens, in proportion to what the proxy counted on that day, and of the money for
    input and output; what the servers counted beyond the proxy belongs to nobody."""
    names, columns = sorted(counted), []
    for place, count in enumerate(tokens):
        weights = [counted[name][place] for name in names]
        columns.append(_divide(count, [*weights, max(total[place] - sum(weights), 0)]))
    columns += [_divide(micros, columns[place]) for micros, place in zip(money, (0, 2), strict=True)]
    return zip([*names, NOBODY], *columns, strict=True)


def _idle_parts(micros: int, busy: Mapping[str, int], tokens: Mapping[str, int]) -> dict[str, int]:
    for weights in (busy, tokens):
        if names := sorted(name for name, weight in weights.items() if weight > 0):
            return dict(zip(names, _divide(micros, [weights[name] for name in names]), strict=True))
    return {IDLE: micros}


def _model_cost(model: str, rows: Mapping[str, Sequence[int]], idle: int, by_weights: bool) -> ModelCost:
    total = [0] * 5
    for row in rows.values():
        _add(total, row)
    uncached, cached, output, input_micros, output_micros = total
    cost = input_micros + output_micros + idle

    def per_million(micros: int, count: int) -> Money | None:
        return Money(micros).share(_MILLION, count) if count else None

    tenants = [
        TenantCost(tenant, row[0] + row[1], row[1], row[2], Money(row[3]), Money(row[4]))
        for tenant, row in sorted(rows.items(), key=lambda item: (-sum(item[1][3:]), item[0]))
        if any(row)
    ]
    return ModelCost(
        model, uncached + cached, cached, output, Money(cost), Money(input_micros), Money(output_micros), Money(idle),
        per_million(cost, uncached + cached + output), per_million(input_micros, uncached),
        per_million(output_micros, output), by_weights, tuple(tenants),
    )  # fmt: skip
