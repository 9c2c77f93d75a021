"""Files about served tokens: what a proxy counted for each tenant, to be read, and what tokens cost, to be written."""

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path

from broker.app.billing.charges_file import csv_rows
from broker.app.billing.focus import check_output_path, write_table
from broker.core.errors import InvalidInput
from broker.core.values.money import Money
from broker.ledger.finops.showback import IDLE
from broker.ledger.finops.tokens import ModelCost, TenantTokens

_COLUMNS = ("date", "team_id", "model", "prompt_tokens", "completion_tokens")
_CACHED, _MAX_DIGITS = "cache_read_input_tokens", 19
_HINT = f"export LiteLLM_DailyTeamSpend with {', '.join(_COLUMNS)}, and {_CACHED} where known"


def read_tenant_tokens(file: Path) -> TenantTokens:
    """LiteLLM's tokens by day (UTC), model and team, from a CSV file with the columns of its table
    ``LiteLLM_DailyTeamSpend``; rows of one team, model and day are added up, and those without a team are left out. A
    model may begin with its provider and a slash. Raises `InvalidInput`.

    Source: ``litellm/proxy/schema.prisma`` of LiteLLM 1.110.
    """
    tokens = defaultdict[tuple[date, str], dict[str, tuple[int, int, int]]](dict)
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv_rows(iter(lines))
            if missing := [name for name in _COLUMNS if name not in (rows.fieldnames or ())]:
                raise InvalidInput(f"the column {missing[0]} is missing", where=str(file), hint=_HINT)
            for row in rows:
                day, read, cached, generated = _numbers(row, f"{file}, line {rows.line_num}")
                team, name = row["team_id"], row["model"] or ""
                uncached, cached = max(read - cached, 0), min(cached, read)
                for model in {name, name.partition("/")[2], name.rpartition("/")[2]} - {""} if team else ():
                    before = tokens[day, model].get(team, (0, 0, 0))
                    tokens[day, model][team] = before[0] + uncached, before[1] + cached, before[2] + generated
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"cannot be read: {error}", where=str(file), hint=_HINT) from error
    return tokens


def _numbers(row: Mapping[str, str | None], where: str) -> tuple[date, int, int, int]:
    texts = [row.get(name) or "0" for name in (_COLUMNS[3], _CACHED, _COLUMNS[4])]
    try:
        if not all(text.isdecimal() and len(text) < _MAX_DIGITS for text in texts):
            raise ValueError(f"found {', '.join(texts)[:60]}")
        return date.fromisoformat((row["date"] or "")[:10]), int(texts[0]), int(texts[1]), int(texts[2])
    except ValueError as error:
        message = f"expected a day such as 2026-11-20, and whole numbers of tokens: {error}"
        raise InvalidInput(message, where=where, hint=_HINT) from error


def write_served(out: Path, models: Sequence[ModelCost]) -> None:
    """Write a row for each model and tenant, and one for the idle cost of each model, to a .csv or .parquet file. The
    costs (USD) add up to what the attempts that served cost. Raises `InvalidInput` and `MissingExtra`."""
    check_output_path(out)
    counts, costs = ("input", "cached", "output"), ("input_cost", "output_cost", "idle_cost")
    rows = []
    for model in models:
        for row in model.tenants:
            money = [_usd(row.input_cost), _usd(row.output_cost), Decimal(0)]
            rows.append([model.model, row.tenant, *(getattr(row, name) for name in counts), *money])
        rows.append([model.model, IDLE, 0, 0, 0, Decimal(0), Decimal(0), _usd(model.idle_cost)])
    columns = {"model": str, "tenant": str, **dict.fromkeys(counts, int), **dict.fromkeys(costs, Decimal)}
    write_table(out, columns, rows)


def _usd(amount: Money) -> Decimal:
    return Decimal(amount.micros).scaleb(-6)
