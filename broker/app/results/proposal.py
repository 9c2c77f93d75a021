"""A proposal of purchases as a result, and as the file from which they are bought. Money in USD."""

from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from broker.app.results.purchases import QuoteResult
from broker.app.results.values import Figure, Moment, Result
from broker.core.errors import InvalidInput
from broker.core.purchases.quotes import CapacityQuote
from broker.core.values.money import Money
from broker.procurement.proposals import ProposedLine, proposal_id


class ProposalLineResult(Result):
    """One line. ``use``: the share of its GPU-hours that the past would have used; ``break_even``: the use from which
    on it is cheaper than on demand, ``break_even_spot`` than spot; null without a price. ``saves_usd``: against on
    demand at that use, over its period; negative: it costs more. ``regret_usd``: the most it can lose;
    ``regret_at_half_usd``: at half that use. ``order``: what is bought, as `capacity buy --from-plan` reads it."""

    line: int
    quote: QuoteResult
    usd_per_gpu_hour: Figure
    use: Figure
    break_even: Figure
    break_even_spot: Figure | None
    saves_usd: Money
    saves_spot_usd: Money | None
    regret_usd: Money
    regret_at_half_usd: Money
    order: dict[str, Any]

    @classmethod
    def of(cls, proposed_line: ProposedLine) -> Self:
        worth = proposed_line.worth
        return cls.from_parts(
            worth,
            line=proposed_line.number,
            quote=proposed_line.quote,
            order=proposed_line.quote.model_dump(mode="json"),
        )


class ProposalResult(Result):
    """`capacity propose`: from the least to the most committed. ``id``: of exactly these lines; ``best``: the line that
    saves most, or null. ``on_demand_usd``, ``spot_usd``: per GPU-hour. ``problems``: by provider, what sellers that
    failed said, and which of its quotes policies let nobody propose, parted by semicolons. ``notes``: of the capacity
    plan that it is based on."""

    id: str
    as_of: Moment
    demand_from: str
    accelerator: str
    held_gpus: int
    on_demand_usd: Figure
    spot_usd: Figure | None
    best: int | None
    lines: list[ProposalLineResult]
    problems: dict[str, str]
    notes: list[str]


def read_proposal(file: Path) -> tuple[ProposalResult, dict[int, CapacityQuote]]:
    """A proposal's file, and the quotes by line. Raises `InvalidInput` for a file that cannot be read, is not a
    proposal, or was changed."""
    where, hint = str(file), "make it with `gpubroker capacity propose … --json > FILE`"
    try:
        proposal = ProposalResult.model_validate_json(file.read_text("utf-8"))
        quotes = {line.line: CapacityQuote.model_validate(line.order, extra="forbid") for line in proposal.lines}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot be read: {error}", where=where) from error
    except ValidationError as error:
        first_error = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first_error["loc"])
        detail = f"{key}: {first_error['msg']}" if key else first_error["msg"]
        raise InvalidInput(f"the file is not a proposal of purchases: {detail}", where=where, hint=hint) from error
    if proposal_id(list(quotes.values())) != proposal.id:
        raise InvalidInput("the lines of the proposal were changed", where=where, hint=hint)
    return proposal, quotes
