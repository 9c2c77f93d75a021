"""The cost of served tokens: every division adds up to the ledger's cost."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from broker.core.events.agent_events import ServedModel, TokensServed
from broker.core.values.money import Money
from broker.ledger.finops.change import NOBODY
from broker.ledger.finops.showback import IDLE
from broker.ledger.finops.tokens import ModelCost, ServedAttempt, TenantTokens, model_costs

NOON = datetime(2026, 11, 12, 12, tzinfo=UTC)
HOUR = 3_600_000


def hour(*models: ServedModel, busy: int = 0, since: datetime = NOON, length: int = HOUR) -> TokensServed:
    until = since + timedelta(milliseconds=length)
    return TokensServed(since=since, until=until, busy_ms=busy, models=models)


def qwen(read: int = 9_000_000, cached: int = 2_500_000, output: int = 600_000, **seconds: int) -> ServedModel:
    return ServedModel(model="Qwen3-32B", input=read, cached=cached, output=output, **seconds)


def costs(micros: int, *hours: TokensServed, tenants: TenantTokens | None = None) -> tuple[ModelCost, ...]:
    """Of one attempt, of which the first hour cost everything."""
    counted = [(served, Money(0 if number else micros)) for number, served in enumerate(hours)]
    return model_costs([ServedAttempt("serve-1", Money(micros), counted)], tenants or {})


def test_an_hour_of_two_tenants() -> None:
    """An H100 at $2.49, busy for 45 minutes, 900 s of prefill and 2,100 s of decoding."""
    served = hour(qwen(input_ms=900_000, output_ms=2_100_000), busy=2_700_000)
    tenants = {
        (NOON.date(), "Qwen3-32B"): {"search": (5_000_000, 2_000_000, 200_000), "chat": (1_500_000, 500_000, 400_000)}
    }
    (row,) = costs(2_490_000, served, tenants=tenants)
    assert row.idle_cost == Money(622_500)
    assert {one.tenant: (one.input_cost.micros, one.output_cost.micros) for one in row.tenants} == {
        "search": (430_962, 435_750),
        "chat": (129_288, 871_500),
    }
    assert {one.tenant: (one.input, one.cached, one.output) for one in row.tenants} == {
        "search": (7_000_000, 2_000_000, 200_000),
        "chat": (2_000_000, 500_000, 400_000),
    }
    assert (row.cost, row.by_weights) == (Money(2_490_000), False)
    assert (row.per_million_input, row.per_million_output) == (Money(86_192), Money(2_178_750))
    assert row.per_million == Money(259_375)


def test_without_seconds_a_generated_token_counts_as_four() -> None:
    (row,) = costs(1_000_000, hour(qwen(600, 200, 100), busy=HOUR))
    assert (row.input_cost, row.output_cost, row.by_weights) == (Money(500_000), Money(500_000), True)


def test_models_share_the_busy_time_and_the_idle_one() -> None:
    other = ServedModel(model="bge", input=1000, cached=0, output=0, input_ms=1000)
    rows = costs(4_000_000, hour(qwen(10, 0, 10, input_ms=1000, output_ms=2000), other, busy=HOUR // 2))
    assert {row.model: (row.input_cost.micros, row.output_cost.micros, row.idle_cost.micros) for row in rows} == {
        "Qwen3-32B": (500_000, 1_000_000, 1_500_000),
        "bge": (500_000, 0, 500_000),
    }


def test_who_serves_nothing_is_idle() -> None:
    (row,) = costs(7, hour(busy=HOUR))
    assert (row.model, row.cost, row.idle_cost, row.per_million) == (IDLE, Money(7), Money(7), None)
    (rare,) = costs(7, hour(qwen(), busy=0))
    assert (rare.model, rare.idle_cost, rare.per_million_output) == ("Qwen3-32B", Money(7), Money.ZERO)


def test_what_the_proxy_did_not_see_belongs_to_nobody() -> None:
    tenants = {(NOON.date(), "Qwen3-32B"): {"search": (300, 0, 25)}}
    first, second = (hour(qwen(200, 0, 50), busy=HOUR, since=NOON + timedelta(hours=number)) for number in (0, 1))
    (row,) = costs(1_000_000, first, second, tenants=tenants)
    assert {one.tenant: (one.input, one.output) for one in row.tenants} == {"search": (300, 26), NOBODY: (100, 74)}
    other_day = {(NOON.date() - timedelta(days=1), "Qwen3-32B"): {"search": (300, 0, 25)}}
    (row,) = costs(1_000_000, first, tenants=other_day)
    assert [one.tenant for one in row.tenants] == [NOBODY]


@pytest.mark.parametrize("seed", range(20))
def test_random_hours_add_up(seed: int) -> None:
    """A thousand hours for each seed: any amount, also a refund, any counts, also impossible ones."""
    dice = random.Random(seed)
    for _ in range(1000):
        micros = dice.choice([0, 1, 7, -9, dice.randrange(10**7)])
        models = []
        for number in range(dice.randrange(4)):
            read, output = dice.randrange(10 ** dice.randrange(1, 7)), dice.randrange(10 ** dice.randrange(1, 6))
            seconds = {name: dice.choice([0, dice.randrange(10**6)]) for name in ("input_ms", "output_ms")}
            models.append(
                ServedModel(model=f"m{number}", input=read, cached=dice.randrange(10), output=output, **seconds)
            )
        served = hour(*models, busy=dice.randrange(2 * HOUR), length=dice.randrange(HOUR))
        shares = {f"t{number}": (dice.randrange(99), dice.randrange(9), dice.randrange(99)) for number in range(3)}
        rows = costs(micros, served, tenants={(NOON.date(), "m0"): shares})
        assert sum(row.cost.micros for row in rows) == micros
        for row in rows:
            assert row.cost == row.input_cost + row.output_cost + row.idle_cost
            parts = [one.input_cost + one.output_cost for one in row.tenants]
            assert sum(parts, Money.ZERO) == row.input_cost + row.output_cost
            assert micros < 0 or min(part.micros for part in [*parts, row.idle_cost]) >= 0
        counted = {model.model: (model.input, model.output) for model in models if model.input or model.output}
        assert {row.model: (row.input, row.output) for row in rows if row.tenants} == counted
