"""The charges of machines that serve tokens, allocated to models, for input, output and idle time. Pure.

Allocated charges take the place of their origin charge: costs and quantities add up to it, all else equals it (FOCUS
1.3, Data Generator-Calculated Split Cost Allocation Handling). The method is that of `broker.ledger.finops.tokens`.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from broker.ledger.entries import amount_within
from broker.ledger.finops.change import divide_by_weights
from broker.ledger.finops.focus.charges import KINDS, ColumnKind, Value
from broker.ledger.finops.showback import IDLE
from broker.ledger.finops.tokens import METHOD, Stretch, busy_parts, parts_within

_COSTS = [name for name, kind in KINDS.items() if kind is ColumnKind.MONEY]
_QUANTITIES = [name for name, kind in KINDS.items() if kind is ColumnKind.DECIMAL and name.endswith("Quantity")]
_NANO = 10**9
_MICROSECOND = timedelta(microseconds=1)


def _time(row: Mapping[str, Value], name: str) -> datetime:
    value = row[name]
    assert isinstance(value, datetime), "the period of a charge has times"
    return value


def allocated_charges(
    row: Mapping[str, Value], stretches: Sequence[Stretch], start: datetime
) -> Iterator[dict[str, Value]]:
    """The allocated charges of an origin charge, without those of nothing; of one whose machine serves no tokens, or
    that corrects an earlier month, the origin charge itself. ``stretches``: of its attempt, since ``start``."""
    if not stretches or row["ChargeClass"] is not None:
        yield dict(row)
        return
    micros = int(row["ContractedCost"])  # type: ignore[arg-type]  # of money columns: whole micro-dollars
    since, until = ((_time(row, name) - start) // _MICROSECOND for name in ("ChargePeriodStart", "ChargePeriodEnd"))
    costs, tokens = Counter[str](), Counter[str]()
    for index, part in parts_within(micros, since, until, stretches):
        begins, ends, count = stretches[index]
        for (name, is_output), busy in busy_parts(part, count).items():
            costs[f"{name}/{'output' if is_output else 'input'}"] += busy
        for model in count.models:
            for name in ("input", "output"):
                tokens[f"{model.model}/{name}"] += amount_within(getattr(model, name), begins, ends, since, until)
    costs[IDLE] = micros - sum(costs.values())
    shares = {resource: share for resource, share in sorted(costs.items()) if share} or {IDLE: 0}
    quantities = {
        name: divide_by_weights(int(quantity * _NANO), list(shares.values()))
        for name in _QUANTITIES
        if isinstance(quantity := row.get(name), Decimal) and micros > 0
    }
    for place, (resource, share) in enumerate(shares.items()):
        ratio = f"{Decimal(share) / micros:.9f}" if micros else "1"
        usage = {"AllocatedRatio": float(ratio), "UsageUnit": "Tokens", "UsageQuantity": tokens[resource]}
        yield {
            **row,
            **{name: share for name in _COSTS if row[name]},
            **{name: Decimal(parts[place]) / _NANO for name, parts in quantities.items()},
            "x_AllocatedMethodDetails": json.dumps({"Elements": [usage]}),
            "x_AllocatedMethodId": METHOD,
            "x_AllocatedResourceId": resource,
        }
