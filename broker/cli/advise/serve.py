"""`gpubroker advise serve`: replicas and GPUs for given traffic, latency, cost, scale to zero, model routing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.advise import inputs
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.app.results.serving_advice import RoutingResult
    from broker.economics.assumptions import Assumptions
    from broker.economics.serving import ScaleToZero, Traffic
    from broker.economics.serving_options import ServingOption

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


@dataclass(frozen=True)
class ServeOptions:
    """The options of `serve`."""

    requests_per_minute: Annotated[float, typer.Option(help="Requests per minute at peak.")]
    tokens_per_request: Annotated[float, typer.Option(help="Tokens generated per request.")]
    model: inputs.ModelOptions
    prompt_tokens: Annotated[float, typer.Option(help="Prompt tokens per request, in addition to those generated.")] = (
        0.0
    )
    prefix_cache: Annotated[float, typer.Option(help="Share of the prompt tokens found in a prefix cache.")] = 0.0
    spare: Annotated[int, typer.Option("--spare-machines", help="Spare machines for failures; 1 is N+1.")] = 0
    headroom: Annotated[float | None, typer.Option(help="Spare capacity as a share. Default: 0.2.")] = None
    tokens_per_second_per_replica: Annotated[
        float | None, typer.Option(help="Measured speed. Default: estimated per accelerator.")
    ] = None
    gpus_per_replica: Annotated[int, typer.Option(help="With a measured speed: GPUs per replica.")] = 1
    p95: Annotated[float | None, typer.Option(metavar="SECONDS", help="95th percentile of the latency.")] = None
    batch: Annotated[
        int | None, typer.Option(help="Concurrent requests per replica. Default: as many as fit in memory.")
    ] = None
    least_replicas: Annotated[int, typer.Option(help="Minimum number of replicas, for availability.")] = 1
    sequence: Annotated[int, typer.Option("--context", help="Tokens per sequence, for the KV cache.")] = 0
    compared: inputs.GpuOptions = inputs.ANY_GPU
    rent_usd_per_hour: Annotated[float | None, inputs.usd("Rent of one replica.")] = None
    idle_share: Annotated[
        float | None, typer.Option(help="Share of hours without requests; evaluates scale to zero.")
    ] = None
    cold_starts: Annotated[float, typer.Option("--cold-starts-per-day", help="Number of cold starts per day.")] = 10.0
    cold_start: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Time to load the model. Default: 60.")
    ] = None
    warm: Annotated[int, typer.Option("--warm-replicas", help="Replicas that are never scaled down.")] = 0
    tier: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:QUALITY:SECONDS:USD", help="Available model, USD per task. Repeatable."),
    ] = None
    task: Annotated[
        list[str] | None, typer.Option(metavar="NAME:COUNT:QUALITY[:SECONDS]", help="Type of task. Repeatable.")
    ] = None


@gathered
def serve(context: typer.Context, given: ServeOptions, as_json: AsJson = False) -> None:
    """Compute replicas and GPUs for given traffic, from a measured speed or for each accelerator that holds the model.

    Latency is checked if --p95 and --batch are given. --idle-share evaluates scale to zero; --tier and --task find the
    smallest model that is good enough for each type of task.
    """
    from broker.app.results.serving_advice import ServeAdvice
    from broker.cli.advise import serve_view
    from broker.economics import serving
    from broker.economics.units import HOURS_PER_MONTH

    terminal = Terminal.of(context)
    thumb = inputs.measured(terminal, inputs.thumb(context))
    notes: list[str] = []
    traffic = _traffic(given, thumb, notes)
    options = _options(terminal, given, traffic, thumb, notes) if given.model.known else ()
    replica = _replica(given, options)
    found = serving.plan(
        traffic,
        tokens_per_second_per_replica=replica.tokens_per_second,
        gpus_per_replica=replica.gpus,
        batch=replica.batch,
        least_replicas=replica.least,
    )
    sleep = _sleep(given, replica.rent_usd_per_hour, found.replicas, traffic, thumb)
    rent = replica.rent_usd_per_hour
    advice = ServeAdvice.from_parts(
        found,
        headroom=traffic.headroom,
        wanted_p95_s=traffic.p95_s,
        monthly_usd=None if rent is None else rent * found.replicas * HOURS_PER_MONTH,
        gpus_per_replica=replica.gpus,
        tokens_per_second_per_replica=replica.tokens_per_second,
        options=options,
        scale_to_zero=sleep,
        routing=_routing(given.tier, given.task),
        assumptions=notes,
    )
    terminal.result(advice, lambda: serve_view.screen(terminal.out, advice))


def _traffic(given: ServeOptions, thumb: Assumptions, notes: list[str]) -> Traffic:
    """The traffic, checked before anything is looked up."""
    from broker.economics.serving import Traffic

    measured, headroom = given.tokens_per_second_per_replica, given.headroom
    if measured is not None:
        notes.append(f"{measured:g} tokens/s per replica, as given")
    if headroom is None:
        headroom = thumb.serving_headroom
        notes.append(f"{headroom:.0%} headroom")
    traffic = Traffic(
        given.requests_per_minute,
        given.tokens_per_request,
        headroom,
        given.p95,
        given.prompt_tokens,
        given.prefix_cache,
    )
    if given.prefix_cache and not given.prompt_tokens:
        raise InvalidInput("needs the number of prompt tokens", where="--prefix-cache", hint="give --prompt-tokens")
    if measured is None and not given.model.known:
        raise InvalidInput(
            "the speed of a replica is missing",
            hint="give --tokens-per-second-per-replica, or the model (--parameters or --config)",
        )
    return traffic


@dataclass(frozen=True)
class _Replica:
    """One replica. ``least``: the minimum number of replicas; ``rent_usd_per_hour``: None if unknown."""

    tokens_per_second: float
    gpus: int
    batch: int | None
    least: int
    rent_usd_per_hour: float | None


def _replica(given: ServeOptions, options: tuple[ServingOption, ...]) -> _Replica:
    """As measured, else on the best accelerator."""
    from broker.economics.units import HOURS_PER_MONTH

    rent = given.rent_usd_per_hour
    if given.tokens_per_second_per_replica is not None:
        return _Replica(
            given.tokens_per_second_per_replica, given.gpus_per_replica, given.batch, given.least_replicas, rent
        )
    if not options:
        raise InvalidInput("no accelerator holds the model", hint="reduce the context or the batch")
    best = options[0]
    if rent is None and best.monthly_usd_on_demand:
        rent = best.monthly_usd_on_demand / HOURS_PER_MONTH / best.replicas
    return _Replica(best.tokens_per_second_per_replica, best.gpus_per_replica, best.batch, best.replicas, rent)


def _options(
    terminal: Terminal, given: ServeOptions, traffic: Traffic, thumb: Assumptions, notes: list[str]
) -> tuple[ServingOption, ...]:
    from broker.app.advise.compared import named_or_all
    from broker.app.advise.serving_choices import ServingDemand, serving_choices

    demand = ServingDemand(
        given.model.subject(), traffic, given.sequence, given.batch, given.least_replicas, given.spare
    )
    prices = given.compared.market(terminal)
    found, more = serving_choices(demand, named_or_all(given.compared.gpu), prices, thumb)
    notes += more
    return found


def _sleep(
    given: ServeOptions, rent: float | None, replicas: int, traffic: Traffic, thumb: Assumptions
) -> ScaleToZero | None:
    from broker.economics.serving import scale_to_zero

    if given.idle_share is None:
        return None
    if rent is None:
        raise InvalidInput("the cost of a replica is missing", hint="give --rent-usd-per-hour")
    return scale_to_zero(
        usd_per_hour=rent,
        idle_share=given.idle_share,
        cold_starts_per_day=given.cold_starts,
        requests_per_day=traffic.requests_per_minute * 1440 * max(1 - given.idle_share, 1e-6),
        cold_start_s=given.cold_start,
        warm_replicas=given.warm,
        replicas=replicas,
        rules=thumb,
    )


def _routing(tier: list[str] | None, task: list[str] | None) -> RoutingResult | None:
    from broker.app.results.serving_advice import RoutingResult
    from broker.economics.routing import TaskClass, Tier, route

    if not tier and not task:
        return None
    tiers = []
    for text in tier or ():
        name, quality, seconds, usd = _parts(text, "--tier", "NAME:QUALITY:SECONDS:USD", 4)
        tiers.append(Tier(name, float(quality), float(seconds), inputs.dollars(usd)))
    tasks = []
    for text in task or ():
        name, number, quality, *rest = _parts(text, "--task", "NAME:COUNT:QUALITY[:SECONDS]", 3, 4)
        tasks.append(TaskClass(name, int(inputs.count(number)), float(quality), *(float(one) for one in rest)))
    return RoutingResult.from_parts(route(tiers, tasks), quality=[(one.name, one.quality) for one in tiers])


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
