"""`gpubroker advise serve`: replicas and GPUs for given traffic, latency, cost, scale to zero, model routing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.advise import inputs
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType

if TYPE_CHECKING:
    from broker.app.advise.prices import CurrentPrices
    from broker.app.advise.subject import Subject
    from broker.economics.routing import Routing, Tier
    from broker.economics.rules import RulesOfThumb
    from broker.economics.serving import ScaleToZero, Traffic
    from broker.economics.serving_options import MachinePrice, ServingOption

EXAMPLES = examples(
    "gpubroker advise serve --requests-per-minute 1000 --tokens-per-request 200 --headroom 0.2 "
    "--tokens-per-second-per-replica 400 --gpus-per-replica 2",
    "gpubroker advise serve --requests-per-minute 300 --tokens-per-request 250 --p95 5 --parameters 8B --layers 32 "
    "--kv-heads 8 --head-dim 128 --context 4096 --batch 16",
    "gpubroker advise serve --requests-per-minute 3000 --prompt-tokens 3500 --tokens-per-request 500 --parameters 70B "
    "--spare-machines 1",
    "gpubroker advise serve --requests-per-minute 5 --tokens-per-request 200 --parameters 8B --idle-share 0.8 --json",
    "gpubroker advise serve --requests-per-minute 60 --tokens-per-request 200 --parameters 8B "
    "--tier small:0.78:0.5:0.0002 --tier large:0.93:2:0.004 --task chat:9000:0.75 --task legal:1000:0.9",
)
_ROWS = 12


def serve(
    context: typer.Context,
    requests_per_minute: Annotated[float, typer.Option("--requests-per-minute", help="Requests per minute at peak.")],
    tokens_per_request: Annotated[float, typer.Option("--tokens-per-request", help="Tokens generated per request.")],
    prompt_tokens: Annotated[
        float, typer.Option("--prompt-tokens", help="Prompt tokens per request, in addition to those generated.")
    ] = 0.0,
    prefix_cache: Annotated[
        float, typer.Option("--prefix-cache", help="Share of the prompt tokens found in a prefix cache.")
    ] = 0.0,
    spare: Annotated[int, typer.Option("--spare-machines", help="Spare machines for failures; 1 is N+1.")] = 0,
    headroom: Annotated[
        float | None, typer.Option("--headroom", help="Spare capacity as a share. Default: 0.2.")
    ] = None,
    tokens_per_second_per_replica: Annotated[
        float | None,
        typer.Option("--tokens-per-second-per-replica", help="Measured speed. Default: estimated per accelerator."),
    ] = None,
    gpus_per_replica: Annotated[
        int, typer.Option("--gpus-per-replica", help="With a measured speed: GPUs per replica.")
    ] = 1,
    p95: Annotated[
        float | None, typer.Option("--p95", metavar="SECONDS", help="95th percentile of the latency.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", help="Concurrent requests per replica. Default: as many as fit in memory.")
    ] = None,
    least_replicas: Annotated[
        int, typer.Option("--least-replicas", help="Minimum number of replicas, for availability.")
    ] = 1,
    parameters: inputs.Parameters = None,
    config: inputs.Config = None,
    sequence: Annotated[int, typer.Option("--context", help="Tokens per sequence, for the KV cache.")] = 0,
    layers: inputs.Layers = None,
    hidden: inputs.Hidden = None,
    heads: inputs.Heads = None,
    kv_heads: inputs.KvHeads = None,
    head_dim: inputs.HeadDim = None,
    gpu: inputs.Gpus = None,
    price: inputs.Price = None,
    rent_usd_per_hour: Annotated[
        float | None,
        typer.Option("--rent-usd-per-hour", parser=inputs.dollars, metavar="USD", help="Rent of one replica."),
    ] = None,
    idle_share: Annotated[
        float | None, typer.Option("--idle-share", help="Share of hours without requests; evaluates scale to zero.")
    ] = None,
    cold_starts: Annotated[float, typer.Option("--cold-starts-per-day", help="Number of cold starts per day.")] = 10.0,
    cold_start: Annotated[
        float | None, typer.Option("--cold-start", metavar="SECONDS", help="Time to load the model. Default: 60.")
    ] = None,
    warm: Annotated[int, typer.Option("--warm-replicas", help="Replicas that are never scaled down.")] = 0,
    tier: Annotated[
        list[str] | None,
        typer.Option("--tier", metavar="NAME:QUALITY:SECONDS:USD", help="Available model, USD per task. Repeatable."),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option("--task", metavar="NAME:COUNT:QUALITY[:SECONDS]", help="Type of task. Repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute replicas and GPUs for given traffic, from a measured speed or for each accelerator that holds the model.

    Latency is checked if --p95 and --batch are given. --idle-share evaluates scale to zero; --tier and --task find the
    smallest model that is good enough for each type of task.
    """
    from broker.app.results.serving_advice import ServeAdvice
    from broker.cli.advise import serve_view
    from broker.economics import serving
    from broker.economics.units import HOURS_PER_MONTH

    terminal = Terminal.of(context)
    thumb = inputs.thumb(context)
    notes: list[str] = []
    if tokens_per_second_per_replica is not None:
        notes.append(f"{tokens_per_second_per_replica:g} tokens/s per replica, as given")
    if headroom is None:
        headroom = thumb.serving_headroom
        notes.append(f"{headroom:.0%} headroom")
    traffic = serving.Traffic(requests_per_minute, tokens_per_request, headroom, p95, prompt_tokens, prefix_cache)
    if prefix_cache and not prompt_tokens:
        raise InvalidInput("needs the number of prompt tokens", where="--prefix-cache", hint="give --prompt-tokens")
    known = parameters is not None or config is not None
    if tokens_per_second_per_replica is None and not known:
        raise InvalidInput(
            "the speed of a replica is missing",
            hint="give --tokens-per-second-per-replica, or the model (--parameters or --config)",
        )
    options: tuple[ServingOption, ...] = ()
    if known:
        from broker.app.advise.subject import subject

        model = subject(parameters, config, inputs.architecture(layers, hidden, heads, kv_heads, head_dim))
        notes += model.notes
        prices = inputs.market(terminal, price, gpu[0] if gpu and len(gpu) == 1 else None)
        options = _options(traffic, model, sequence, batch, (least_replicas, spare), gpu, prices, notes, thumb)
    if tokens_per_second_per_replica is None:
        if not options:
            raise InvalidInput("no accelerator holds the model", hint="reduce the context or the batch")
        best = options[0]
        tokens_per_second_per_replica, gpus_per_replica = best.tokens_per_second_per_replica, best.gpus_per_replica
        batch = best.batch
        least_replicas = best.replicas
        if rent_usd_per_hour is None and best.monthly_usd_on_demand:
            rent_usd_per_hour = best.monthly_usd_on_demand / HOURS_PER_MONTH / best.replicas
    found = serving.plan(
        traffic,
        tokens_per_second_per_replica=tokens_per_second_per_replica,
        gpus_per_replica=gpus_per_replica,
        batch=batch,
        least_replicas=least_replicas,
    )
    sleep = _sleep(idle_share, rent_usd_per_hour, cold_starts, cold_start, warm, found.replicas, traffic, thumb)
    routing, tiers = _routing(tier, task)
    monthly = None
    if rent_usd_per_hour is not None:
        monthly = rent_usd_per_hour * found.replicas * HOURS_PER_MONTH
    if as_json:
        terminal.answer(
            ServeAdvice.from_parts(
                found,
                monthly_usd=monthly,
                gpus_per_replica=gpus_per_replica,
                tokens_per_second_per_replica=tokens_per_second_per_replica,
                options=options,
                scale_to_zero=sleep,
                routing=routing,
                assumptions=notes,
            )
        )
    else:
        chosen = options[0] if options else None
        terminal.show(*serve_view.screen(terminal.out, traffic, found, chosen, options[:_ROWS], monthly, notes))
        if sleep is not None:
            terminal.show(*serve_view.sleeping(sleep))
        if routing is not None:
            terminal.show(*serve_view.routes(terminal.out, routing, tiers))


def _options(
    traffic: Traffic,
    model: Subject,
    context: int,
    batch: int | None,
    least: tuple[int, int],
    gpu: list[str] | None,
    prices: CurrentPrices,
    notes: list[str],
    thumb: RulesOfThumb,
) -> tuple[ServingOption, ...]:
    from broker.core.values.accelerators import lookup
    from broker.economics.serving_options import GpuHourPrices, options, simulated
    from broker.economics.unit_cost import energy_usd_per_hour
    from broker.economics.units import HOURS_PER_YEAR

    replicas, spare = least

    def per_gpu(name: str, kind: CapacityType) -> float | None:
        quote = prices.gpu_hour(name, kind)
        return quote.usd_per_gpu_hour if quote else None

    priced = []
    for card in inputs.accelerators(gpu):
        low, high = card.street_price or (None, None)
        power = energy_usd_per_hour(card.tdp_w or 0.0, thumb.kwh_usd, thumb.pue)
        owned = (low + high) / 2 / (thumb.life_years * HOURS_PER_YEAR) + power if low and high else None
        rented, reserved = CapacityType.ON_DEMAND, CapacityType.RESERVED
        prices_of = GpuHourPrices(
            owned, per_gpu(card.name, reserved), per_gpu(card.name, rented),
            _machines(prices, card.name, rented), _machines(prices, card.name, reserved),
        )  # fmt: skip
        priced.append((card, prices_of))
    if batch is None:
        notes.append(f"as many concurrent requests as fit in memory, at most {thumb.serving_most_sequences} (--batch)")
    if traffic.prompt_tokens:
        notes.append("prompts are read between the steps of generation, on the same GPUs")
    else:
        notes.append("the work for prompts is not counted (--prompt-tokens)")
    notes += [
        "speeds are estimates within a factor of 1.6 of published ones (`gpubroker backtest serving`); measure yours",
        "rented and reserved: whole machines",
        f"owned: the GPU's street price over {thumb.life_years:g} years and its board power at "
        f"${thumb.kwh_usd:g}/kWh, PUE {thumb.pue:g}; no host, no staff",
    ]
    found = options(
        traffic,
        parameters=model.parameters,
        active=model.active,
        shape=model.shape,
        context=context,
        batch=batch,
        accelerators=priced,
        least_replicas=replicas,
        spare_machines=spare,
        rules=thumb,
    )
    if found and traffic.prompt_tokens:
        first = simulated(
            found[0],
            traffic,
            lookup(found[0].accelerator),
            parameters=model.parameters,
            shape=model.shape,
            active=model.active,
            rules=thumb,
        )
        found = (first, *found[1:])
    return found


def _machines(prices: CurrentPrices, accelerator: str, kind: CapacityType) -> tuple[MachinePrice, ...]:
    """The cheapest machine of each size."""
    from broker.economics.serving_options import MachinePrice

    if accelerator in prices.stated:
        return tuple(MachinePrice(size, prices.stated[accelerator] * size) for size in (1, 2, 4, 8))
    sizes = sorted({row.count for row in prices.machines(accelerator) if row.capacity_type == kind})
    quotes = [(size, prices.quote(accelerator, size, 1, kind)) for size in sizes]
    return tuple(MachinePrice(size, quote.usd_per_hour) for size, quote in quotes if quote is not None)


def _sleep(
    idle: float | None,
    rent: float | None,
    starts: float,
    seconds: float | None,
    warm: int,
    replicas: int,
    traffic: Traffic,
    thumb: RulesOfThumb,
) -> ScaleToZero | None:
    from broker.economics.serving import scale_to_zero

    if idle is None:
        return None
    if rent is None:
        raise InvalidInput("the cost of a replica is missing", hint="give --rent-usd-per-hour")
    return scale_to_zero(
        usd_per_hour=rent,
        idle_share=idle,
        cold_starts_per_day=starts,
        requests_per_day=traffic.requests_per_minute * 1440 * max(1 - idle, 1e-6),
        cold_start_s=seconds,
        warm_replicas=warm,
        replicas=replicas,
        rules=thumb,
    )


def _routing(tier: list[str] | None, task: list[str] | None) -> tuple[Routing | None, tuple[Tier, ...]]:
    from broker.economics.routing import TaskClass, Tier, route

    if not tier and not task:
        return None, ()
    tiers = []
    for text in tier or ():
        name, quality, seconds, usd = _parts(text, "--tier", "NAME:QUALITY:SECONDS:USD", 4)
        tiers.append(Tier(name, float(quality), float(seconds), inputs.dollars(usd)))
    tasks = []
    for text in task or ():
        name, number, quality, *rest = _parts(text, "--task", "NAME:COUNT:QUALITY[:SECONDS]", 3, 4)
        tasks.append(TaskClass(name, int(inputs.count(number)), float(quality), *(float(one) for one in rest)))
    return route(tiers, tasks), tuple(tiers)


def _parts(text: str, flag: str, form: str, *sizes: int) -> list[Any]:
    """The parts between colons; all but the first are numbers."""
    parts = text.split(":")
    try:
        if len(parts) not in sizes:
            raise ValueError
        for number in parts[1:]:
            float(number.lstrip("$").rstrip("KMBkmb"))
    except ValueError as error:
        raise InvalidInput(f"expected {form}; got {text[:60]!r}", where=flag) from error
    return parts
