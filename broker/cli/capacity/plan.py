"""`gpubroker capacity plan`: how much to own or reserve, and how much to serve by bursts."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.render.figures import Force, Picture, ShowChart, draw
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.app.capacity.plan import Stated

EXAMPLES = examples(
    "gpubroker capacity plan",
    "gpubroker capacity plan --demand H100=h100.csv --reserved-price 2.10 --term 1y --spot-share 0.5",
    "gpubroker capacity plan --demand fleet.csv --ratio 0.6 --term 720h --chart",
    "gpubroker capacity plan --from-history --gpu A100-80GB --own-price 15000 --life 4y --watts 700 --kwh-usd 0.15",
)


def plan(
    context: typer.Context,
    demand: Annotated[
        list[str] | None,
        typer.Option(
            "--demand",
            metavar="[GPU=]FILE",
            help="Hourly GPU demand: one number per line, or a CSV with one column per accelerator.",
        ),
    ] = None,
    from_history: Annotated[
        bool, typer.Option("--from-history", help="Use the demand recorded in this store (default).")
    ] = False,
    last: Annotated[
        str, typer.Option("--last", metavar="TIME", help="With --from-history: length of the period.")
    ] = "1y",
    gpu: Annotated[
        list[str] | None, typer.Option("--gpu", metavar="NAME", help="Only this accelerator. Repeatable.")
    ] = None,
    provider: Annotated[
        list[str] | None, typer.Option("--provider", metavar="NAME", help="Only prices of this provider. Repeatable.")
    ] = None,
    on_demand_price: Annotated[
        list[str] | None,
        typer.Option("--on-demand-price", metavar="[GPU=]USD", help="Price per GPU-hour, instead of the market's."),
    ] = None,
    spot_price: Annotated[
        list[str] | None,
        typer.Option("--spot-price", metavar="[GPU=]USD", help="Price per GPU-hour, instead of the market's."),
    ] = None,
    reserved_price: Annotated[
        list[str] | None,
        typer.Option(
            "--reserved-price", metavar="[GPU=]USD", help="Price per GPU-hour for --term, instead of the market's."
        ),
    ] = None,
    ratio: Annotated[
        float | None, typer.Option("--ratio", help="Reserved price over on-demand price, instead of --reserved-price.")
    ] = None,
    term: Annotated[
        list[str] | None,
        typer.Option("--term", metavar="TIME", help="Term of the stated reserved price: 720h, 1y, 36mo. Repeatable."),
    ] = None,
    own_price: Annotated[
        list[str] | None,
        typer.Option("--own-price", metavar="[GPU=]USD", help="Purchase price of a GPU with its share of the machine."),
    ] = None,
    life: Annotated[str, typer.Option("--life", metavar="TIME", help="Useful life of a purchased GPU.")] = "4y",
    watts: Annotated[
        float, typer.Option("--watts", help="Power draw of a purchased GPU with its share of the machine.")
    ] = 0.0,
    kwh_usd: Annotated[float, typer.Option("--kwh-usd", help="Electricity price per kWh.")] = 0.0,
    pue: Annotated[float, typer.Option("--pue", help="Power usage effectiveness: total power over IT power.")] = 1.0,
    spot_share: Annotated[
        float | None,
        typer.Option(
            "--spot-share",
            help="Share of bursts that runs on spot, 0 to 1. Default: as recorded; 0 with --demand.",
        ),
    ] = None,
    chart: ShowChart = False,
    picture: Picture = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Plan how much to own or reserve and for how long, what to serve by bursts, what to let lapse, and when.

    Buys nothing. A GPU is worth holding if the share of hours in which demand reaches it exceeds its price over the
    price of bursts, plus a margin for the commitment. Prices are the cheapest of the market unless given. Capacity
    already held is read from the records of `capacity list`.
    """
    from broker.app.capacity import plan as use_case
    from broker.cli.capacity import plan_view
    from broker.cli.capacity.terms import length

    terminal = Terminal.of(context)
    broker = terminal.broker()
    stated = use_case.checked(
        _stated(on_demand_price, spot_price, reserved_price, ratio, term, own_price, life, watts, kwh_usd, pue)
    )
    if demand and from_history:
        raise InvalidInput("give --demand or --from-history, not both", where="--from-history")
    if demand:
        found, notes = use_case.demand_of_files([_named(text) for text in demand])
        source, observed = ", ".join(demand), dict.fromkeys(found, 0.0)
    else:
        since = broker.clock.now() - length("--last", last)
        history = use_case.demand_of_history(broker, since)
        found, observed, notes = history.demand, history.spot_share, []
        source = f"{history.attempts} attempts on record here"
    planned = use_case.plan(
        broker,
        _only(found, gpu or []),
        source,
        stated,
        providers=provider or [],
        spot_share=observed if spot_share is None else spot_share,
        notes=notes,
    )
    draw(terminal, lambda: plan_view.charts(planned), chart=chart, picture=picture, force=force)
    if as_json:
        from broker.app.results.capacity_plan import CapacityPlanList

        terminal.answer(CapacityPlanList.of(planned))
    else:
        terminal.show(*plan_view.tables(terminal.out, planned))


def _stated(
    on_demand: list[str] | None,
    spot: list[str] | None,
    reserved: list[str] | None,
    ratio: float | None,
    term: list[str] | None,
    own: list[str] | None,
    life: str,
    watts: float,
    kwh_usd: float,
    pue: float,
) -> Stated:
    from broker.app.capacity.plan import Stated
    from broker.cli.capacity.terms import hours, length

    if term and ratio is None and not reserved:
        raise InvalidInput("needs a stated price", where="--term", hint="add --reserved-price or --ratio")
    if reserved and ratio is not None:
        raise InvalidInput("give --reserved-price or --ratio, not both", where="--ratio")
    return Stated(
        on_demand=_prices("--on-demand-price", on_demand),
        spot=_prices("--spot-price", spot),
        reserved=_prices("--reserved-price", reserved),
        ratio=ratio,
        terms=tuple(hours("--term", text) for text in term or ["1y"]),
        own=_prices("--own-price", own),
        life_hours=length("--life", life) / timedelta(hours=1),
        watts=watts,
        kwh_usd=kwh_usd,
        pue=pue,
    )


def _prices(option: str, texts: list[str] | None) -> dict[str, float]:
    """``H100=2.10`` for one accelerator, ``2.10`` for all of them."""
    from broker.app.capacity.plan import ALL
    from broker.cli import filters
    from broker.core.errors import UnknownName
    from broker.core.values.accelerators import canonical

    found: dict[str, float] = {}
    for text in texts or []:
        name, equals, amount = text.rpartition("=")
        try:
            called = canonical(name) if equals else ALL
        except UnknownName:
            called = name  # a series of that name
        found[called] = float(filters.price(option, amount).dollars)
    return found


def _named(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    return (name, Path(path)) if equals and not Path(text).exists() else ("", Path(text))


def _only(found: dict[str, list[int]], wanted: list[str]) -> dict[str, list[int]]:
    from broker.core.errors import UnknownName
    from broker.core.values.accelerators import canonical

    if not wanted:
        return found
    names = [name if name in found else canonical(name) for name in wanted]
    for name in names:
        if name not in found:
            raise UnknownName("accelerator with demand", name, found, where="--gpu")
    return {name: found[name] for name in names}
