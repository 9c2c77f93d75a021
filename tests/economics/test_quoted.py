"""Quoted rules of thumb: verdicts follow the figures that are passed in, and every command is one that exists."""

import shlex

import pytest

from broker.economics.rules_of_thumb import MarketFigures, QuotedRule, quoted_rules


def rule(text: str, market: MarketFigures | None = None) -> QuotedRule:
    return next(one for one in quoted_rules(market) if text in one.rule)


def test_each_failing_rule_says_why() -> None:
    found = quoted_rules()
    assert sum(one.holds is False for one in found) >= 8
    assert all(one.fails for one in found if one.holds is False)


@pytest.mark.parametrize(("rent", "holds"), [(2.0, False), (40.0, True)])
def test_buying_above_six_hours_a_day_depends_on_the_rent(rent: float, holds: bool) -> None:
    found = rule("buy (H100", MarketFigures({"H100": rent}))
    assert found.holds is holds


def test_the_quoted_build_pays_back_only_around_the_clock() -> None:
    assert "above 23.8 h/day" in rule("$2,200").says  # computed independently: not before about 24


def test_discounts_are_judged_by_current_prices_only() -> None:
    assert rule("spot capacity").holds is None
    assert rule("spot capacity", MarketFigures(spot=(0.3, 0.4, 0.9))).holds is True
    assert rule("spot capacity", MarketFigures(spot=(0.8, 0.85, 0.2))).holds is False


def test_an_api_is_beaten_by_many_requests_at_once_or_not_at_all() -> None:
    """At $0.36/h 50 tokens/s of a 4090 cost $1.98 a million, ten times the API's $0.20; shared by many it is less."""
    found = rule("7B model", MarketFigures({"RTX4090": 0.36}))
    assert "never with one at a time (50.4 tokens/s)" in found.says
    assert "break-even is 20%" in found.says


def test_a_discount_counts_as_it_is_shown() -> None:
    assert rule("reserved capacity", MarketFigures(reserved=(0.396, 0.396))).holds is True, "60 %, as it says"


def test_key_value_heads_are_counted() -> None:
    assert "687 GB by the rule, 85.9 GB" in rule("KV cache").says


def test_three_quoted_figures_come_out_as_computed_independently() -> None:
    assert "it saves 67%" in rule("saves 93%").says
    assert "5.9 times a token" in rule("FP32 on an A100").says
    assert "18 bytes" in rule("16 to 18 bytes").says


@pytest.mark.parametrize("one", quoted_rules(), ids=lambda one: one.rule[:40])
def test_its_command_parses(one: QuotedRule) -> None:
    from typer.main import get_command

    from broker.cli.program import app

    words = shlex.split(one.command)[1:]
    command = get_command(app)
    context = command.make_context("gpubroker", words, resilient_parsing=True)
    name, inner, rest = command.resolve_command(context, words)  # type: ignore[attr-defined]  # it is a group
    while hasattr(inner, "resolve_command"):
        context = inner.make_context(name, rest, parent=context, resilient_parsing=True)
        name, inner, rest = inner.resolve_command(context, rest)
    known = {option for parameter in inner.params for option in parameter.opts}
    assert {word for word in rest if word.startswith("--")} <= known
