"""The commands of `gpubroker advise`: options, use case, document."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from broker.app.advise import buy_or_rent as buying
from broker.app.advise import cost as costs
from broker.app.advise import hardware as comparing
from broker.app.advise import history
from broker.app.advise import savings as saving
from broker.app.advise import serve as serving
from broker.app.advise import size as sizing
from broker.app.advise import speed as speeds
from broker.app.advise.deploy import deploy as deployment
from broker.app.advise.deploy.situation import DeployDemand
from broker.app.assumptions import list_assumptions
from broker.cli.advise import view
from broker.cli.advise.inputs import EVERYWHERE, AnyModel, Ask, Gpu, Gpus, Model, Setting, row
from broker.cli.drawing import Drawing, draw
from broker.cli.options import AsJson, examples, expand_options
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.economics.assumptions import number_of
from broker.economics.kinds import BoundBy, Fact, Goal, Method

MethodOption = Annotated[Method, typer.Option("--method", "-m", help="Training method, or inference.")]
Batch = Annotated[str | None, row("Sequences, or images, per GPU at once. Default: 1.")]
Context = Annotated[str | None, row("Tokens per sequence.")]


def _show_answer(terminal: Terminal, answer: Any) -> None:
    """Print the answer: its document, or as text."""
    terminal.result(answer, lambda: view.advice_lines(terminal.out, answer))


SIZE_EXAMPLES = examples(
    "gpubroker advise size 7B --method qlora --batch 8 --context 4096",
    "gpubroker advise size 70B --method qlora --context 512 --gpus 2 --assume zero=3 --assume offload=yes",
    "gpubroker advise size 70B --gpu H100 --gpus 64",
    "gpubroker advise size 70B --method inference --batch 32 --context 8192 --assume precision=fp8 --json",
)


@dataclass(frozen=True)
class SizeOptions:
    """The options of `size`."""

    method: MethodOption = Method.ADAMW
    batch: Batch = None
    context: Context = None
    gpus: Annotated[str | None, row("At least that many GPUs. Default: the fewest that hold it.")] = None


@expand_options
def size(
    ctx: typer.Context, model: Model, given: SizeOptions, gpu: Gpus = None, at: Setting = EVERYWHERE,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Compute the GPU memory of a model, the accelerators that hold it, their current cost, and its parallel layout.

    Each accelerator is shown with its smallest layout; with a layout (--assume zero=3, tensor_degree, pipeline_degree,
    offload) only those that hold the model in it. More GPUs than one machine has are whole machines; the price is that
    of all of them. The printed constraint can be copied into a job file.
    """
    ask = Ask(ctx, at, given, gpu)
    subject = ask.model(model)
    assert subject is not None
    _show_answer(ask.terminal, sizing.size_advice(subject, given.method, ask.gpus, ask.prices, ask.assumptions))


SPEED_EXAMPLES = examples(
    "gpubroker advise speed 7B --gpu H100",
    "gpubroker advise speed 7B --gpu A100-80GB --gpus 64 --tokens 1T --assume mfu=0.4",
    "gpubroker advise speed 7B --gpus 8 --measured 52000 --json",
    "gpubroker advise speed 7B --tokens 100B --deadline 240h",
    "gpubroker advise speed --assume gpu_hours=5000 --measured 1:410 --measured 8:3000 --measured 32:10100 --price 2.5 "
    "--chart",
)


@dataclass(frozen=True)
class SpeedOptions:
    """The options of `speed`."""

    gpus: Annotated[str | None, row("GPUs that hold one copy of the model; in training, all GPUs. Default: 1.")] = None
    tokens: Annotated[str | None, row("Training tokens, such as 1T: time, and time and cost by cluster size.")] = None
    batch: Annotated[str | None, row("Sequences generated at once. Default: 1.")] = None
    context: Context = None
    deadline_hours: Annotated[str | None, row("Time limit, such as 240h or 8w.", "TIME", "--deadline")] = None
    measured: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[GPUS:]SPEED",
            help="Measured training tokens/s: prints the MFU. With GPUS, in any unit and at least twice: the scaling.",
        ),
    ] = None


@expand_options
def speed(
    ctx: typer.Context, given: SpeedOptions, drawing: Drawing, model: AnyModel = None, gpu: Gpu = "H100",
    at: Setting = EVERYWHERE, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Compute how fast GPUs generate tokens and what limits them, how long training takes, and how both scale.

    With --tokens (or --assume gpu_hours=N): time and cost by cluster size, the cheapest size that meets the deadline,
    and diminishing returns.
    """
    ask = Ask(ctx, at, given, gpu)
    advice = speeds.speed_advice(ask.model(model), ask.gpus[0], given.measured or (), ask.prices, ask.assumptions)
    _show_answer(ask.terminal, advice)
    draw(ask.terminal, lambda: view.utilization_by_size(advice), drawing)


class CostOf(StrEnum):
    """What is paid for."""

    RUN = "run"
    UNIT = "unit"
    CLUSTER = "cluster"
    IMAGES = "images"
    EMBEDDING = "embedding"


COST_EXAMPLES = examples(
    "gpubroker advise cost run 2000 --gpu H100 --assume failed_share=0.1 --assume experiments=2",
    "gpubroker advise cost unit 1500 --gpu H100 --utilization 0.5 --assume api_usd=0.60",
    "gpubroker advise cost unit 70 --assume purchase_usd=1600 --assume watts=450",
    "gpubroker advise cost cluster 300000 --gpus 8 --assume facility_usd=65000 --assume watts=10200",
    "gpubroker advise cost images ViT-L/16 --batch 64 --items 100M",
    "gpubroker advise cost images SDXL --method lora --batch 4 --assume checkpointing=yes --gpu RTX4090 --json",
    "gpubroker advise cost embedding 335M --items 1B --assume tokens_per_item=256",
)


@dataclass(frozen=True)
class CostOptions:
    """The options of `cost`."""

    items: Annotated[str | None, row("Images or documents in all, such as 100M.")] = None
    batch: Batch = None
    method: Annotated[
        Method,
        typer.Option(
            "--method", "-m", metavar="METHOD", help="Of a network on images: adamw, sgd, lora, qlora or inference."
        ),
    ] = Method.ADAMW
    gpus: Annotated[str | None, row("GPUs of the cluster. Default: 8.")] = None
    years: Annotated[str | None, row("Years of depreciation.")] = None
    utilization: Annotated[str | None, row("Share of all hours in use.")] = None


@expand_options
def cost(
    ctx: typer.Context,
    of: Annotated[CostOf, typer.Argument(metavar="WHAT", help="run, unit, cluster, images or embedding.")],
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SUBJECT",
            help="run: its GPU-hours; unit: tokens/s of the busy machine; cluster: price of its servers; images: the "
            "network, such as SDXL; embedding: the model, such as 335M.",
        ),
    ],
    given: CostOptions,
    gpu: Gpus = None,
    at: Setting = EVERYWHERE,
    as_json: AsJson = False,
) -> None:
    """Compute what GPU work costs: a finished model, a million tokens, an owned GPU-hour, images, embeddings.

    run: compute, failed runs, experiments, data preparation, storage. unit: a million tokens, owned (purchase_usd) or
    rented, compared with an API (api_usd). cluster: servers, capital, and building, energy and staff, at the middle of
    quoted ranges where not stated. images: memory, speed and cost of a network on images. embedding: embedding a
    collection once, and the size of its vectors.
    """
    ask = Ask(ctx, at, given, gpu or (["H100"] if at.price and of in (CostOf.RUN, CostOf.UNIT) else None))
    name = ask.gpus[0] if ask.gpus else ""
    answers: Mapping[CostOf, Callable[[], Any]] = {
        CostOf.RUN: lambda: costs.run_cost(_parse_number(subject), name, ask.prices, ask.assumptions),
        CostOf.UNIT: lambda: costs.unit_cost(_parse_number(subject), name, lambda: ask.prices, ask.assumptions),
        CostOf.CLUSTER: lambda: costs.owned_hour(_parse_number(subject), ask.assumptions),
        CostOf.IMAGES: lambda: costs.images_cost(subject, given.method, ask.gpus, ask.prices, ask.assumptions),
        CostOf.EMBEDDING: lambda: costs.embedding_cost(
            _require_model(ask, subject), ask.gpus, ask.prices, ask.assumptions
        ),
    }
    _show_answer(ask.terminal, answers[of]())


def _require_model(ask: Ask, text: str) -> Any:
    subject = ask.model(text)
    assert subject is not None
    return subject


def _parse_number(text: str) -> float:
    try:
        return number_of(text)
    except ValueError as error:
        raise InvalidInput(f"expected a number; got {text[:40]!r}", where="SUBJECT") from error


BUY_OR_RENT_EXAMPLES = examples(
    "gpubroker advise buy-or-rent --gpu H100 --hours-per-day 12",
    "gpubroker advise buy-or-rent --gpu H100 --gpus 16 --where provider=aws --assume price_decline=0.2 --chart",
    "gpubroker advise buy-or-rent --gpu H100 --gpus 8 --from-history 90",
    "gpubroker advise buy-or-rent --assume purchase_usd=12000 --assume rent_usd_per_hour=5.12 --json",
)


@dataclass(frozen=True)
class BuyOrRentOptions:
    """The options of `buy-or-rent`."""

    gpus: Annotated[str | None, row("Number of GPUs needed. Default: 1.")] = None
    years: Annotated[str | None, row("Period of use in years. Default: 3.")] = None
    hours_per_day: Annotated[str | None, row("Hours in use per day, up to 24.")] = None
    from_history: Annotated[
        float | None, typer.Option(metavar="DAYS", help="Utilization from the recorded use of your jobs.")
    ] = None
    team: Annotated[str | None, typer.Option(help="With --from-history: only jobs of this team.")] = None


@expand_options
def buy_or_rent(
    ctx: typer.Context, given: BuyOrRentOptions, drawing: Drawing, gpu: Gpu = None, at: Setting = EVERYWHERE,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Compare the cost of the same GPUs owned, reserved, on demand and on spot, and the inputs that change the answer.

    Shows present values, break-evens, payback, and the effect of falling rents; compares rules of thumb with the
    arithmetic. Reservations are paid for every hour, other machines for the hours in use. With --gpu, missing prices
    are looked up: on demand as `gpubroker offers` ranks them, reserved and spot of the same class of machine. Without:
    --assume purchase_usd, rent_usd_per_hour, reserved_usd_per_hour, spot_usd_per_hour.
    """
    ask = Ask(ctx, at, given, gpu)
    name = ask.gpus[0] if ask.gpus else None
    advice = buying.buy_or_rent(name, lambda: ask.prices, ask.assumptions, _recorded_usage(ask, given, name))
    _show_answer(ask.terminal, advice)
    draw(ask.terminal, lambda: [view.costs_by_hours(advice)], drawing)


def _recorded_usage(ask: Ask, given: BuyOrRentOptions, gpu: str | None) -> history.PastUse | None:
    """The recorded use, if it is asked for."""
    if given.from_history is None:
        return None
    if given.hours_per_day is not None or "utilization" in ask.assumptions.stated:
        raise InvalidInput("--from-history cannot be combined with --hours-per-day or utilization")
    if not 0 < given.from_history <= 3650:
        raise InvalidInput(f"expected days above 0, up to 3650; got {given.from_history:g}", where="--from-history")
    now, days = datetime.now(UTC), given.from_history
    recorded = history.recorded_use(
        ask.terminal.settings().store_url, lambda: ask.terminal.broker(look_after=False), now - timedelta(days=days)
    )
    return history.usage(
        recorded, now, days=days, accelerator=gpu, team=given.team, gpus=ask.assumptions.gpus or 1,
        assumptions=ask.assumptions,
    )  # fmt: skip


SERVE_EXAMPLES = examples(
    "gpubroker advise serve 8B --requests-per-minute 300 --tokens-per-request 250 --p95 5",
    "gpubroker advise serve 70B --requests-per-minute 3000 --prompt-tokens 3500 --assume spare_machines=1",
    "gpubroker advise serve --requests-per-minute 1000 --assume replica_tokens_per_second=400 "
    "--assume gpus_per_replica=2",
    "gpubroker advise serve 8B --requests-per-minute 5 --assume idle_share=0.8 --json",
    "gpubroker advise serve 8B --requests-per-minute 60 --tier small:0.78:0.5:0.0002 --tier large:0.93:2:0.004 "
    "--task chat:9000:0.75 --task legal:1000:0.9",
)


@dataclass(frozen=True)
class ServeOptions:
    """The options of `serve`."""

    requests_per_minute: Annotated[str | None, row("Requests per minute at peak.")] = None
    tokens_per_request: Annotated[str | None, row("Tokens generated per request. Default: 200.")] = None
    prompt_tokens: Annotated[str | None, row("Prompt tokens per request, in addition. Default: 500.")] = None
    p95_s: Annotated[str | None, row("95th percentile of the latency.", "SECONDS", "--p95")] = None
    tier: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:QUALITY:SECONDS:USD", help="Available model, USD per task. Repeatable."),
    ] = None
    task: Annotated[
        list[str] | None, typer.Option(metavar="NAME:COUNT:QUALITY[:SECONDS]", help="Type of task. Repeatable.")
    ] = None


@expand_options
def serve(
    ctx: typer.Context, given: ServeOptions, model: AnyModel = None, gpu: Gpus = None, at: Setting = EVERYWHERE,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Compute replicas and GPUs for given traffic, from a measured speed or for each accelerator that holds the model.

    --assume replica_tokens_per_second=N: a measured speed, with --assume batch=N requests at once (default: as many as
    it answers within --p95). --assume idle_share=0.8 evaluates scale to zero; --tier and --task find the smallest model
    that is good enough for each type of task.
    """
    ask = Ask(ctx, at, given, gpu)
    subject = ask.model(model)
    advice = serving.serving_advice(subject, ask.gpus, given.tier or (), given.task or (), ask.prices, ask.assumptions)
    _show_answer(ask.terminal, advice)


HARDWARE_EXAMPLES = examples(
    "gpubroker advise hardware --for compute",
    "gpubroker advise hardware --for bandwidth --buy --gpu RTX3090 --gpu RTX4090 --gpu A100 --gpu H100 --gpu L40S",
    "gpubroker advise hardware --gpu H100 --gpu A100-80GB --price H100=2.5 --chart",
    "gpubroker advise hardware --gpu H100 --gpus 8 --hours 100 --location aws/us-east-1",
    "gpubroker advise hardware --trial L4:0.7:1200 --trial H100:2.5:5100 --trial cpu-16:0.6:900 --json",
)


@dataclass(frozen=True)
class HardwareOptions:
    """The options of `hardware`."""

    bound_by: Annotated[
        BoundBy, typer.Option("--for", help="Training is bound by compute, small-batch inference by bandwidth.")
    ] = BoundBy.COMPUTE
    buy: Annotated[bool, typer.Option("--buy", help="Compare street prices instead of hourly prices.")] = False
    trial: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:USD_PER_HOUR:UNITS_PER_HOUR", help="Your own measurement. Repeatable."),
    ] = None
    hours: Annotated[float | None, typer.Option(help="Hours of work: also their energy and carbon.")] = None
    gpus: Annotated[str | None, row("With --hours: number of GPUs. Default: 1.")] = None
    location: Annotated[
        str | None, row("With --hours: provider/region, a country such as DE, or world.", "PLACE", "--location", "-l")
    ] = None


@expand_options
def hardware(
    ctx: typer.Context, given: HardwareOptions, drawing: Drawing, gpu: Gpus = None, at: Setting = EVERYWHERE,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Compare hardware: performance per dollar in the limiting resource, a radar of scores, energy and carbon.

    Scores from 0 to 1 (best of those compared): cost, performance, energy efficiency, software maturity. Before buying,
    measure three or four candidates on your own work and compare the cost per unit of work (--trial). With --hours:
    kWh and kg CO2e of the first GPU, with a scorecard and cleaner locations.
    """
    ask = Ask(ctx, at, given, gpu)
    advice = comparing.hardware(
        given.bound_by, ask.gpus, given.trial or (), ask.prices, ask.assumptions, buy=given.buy, hours=given.hours
    )
    _show_answer(ask.terminal, advice)
    draw(ask.terminal, lambda: [view.radar(advice)], drawing)


SAVINGS_EXAMPLES = examples(
    "gpubroker advise savings 7B --method inference --utilization 0.2 --monthly-usd 12000",
    "gpubroker advise savings 7B --method adamw --is interruptible --is checkpointed",
    "gpubroker advise savings 70B --method inference --is exact-output --steady 0.6 --json",
)


@dataclass(frozen=True)
class SavingsOptions:
    """The options of `savings`."""

    method: Annotated[
        Method | None, typer.Option("--method", "-m", help="Training method, or inference. Default: training.")
    ] = None
    facts: Annotated[list[Fact] | None, typer.Option("--is", help="A fact or requirement. Repeatable.")] = None
    gpu_utilization: Annotated[str | None, row("Present GPU utilization. Default: 0.5.", "SHARE", "--utilization")] = (
        None
    )
    steady_share: Annotated[str | None, row("Share of demand that is steady.", "SHARE", "--steady")] = None
    spare_hours_share: Annotated[str | None, row("Share of paid hours without work.", "SHARE", "--spare-hours")] = None
    monthly_usd: Annotated[str | None, typer.Option(metavar="USD", help="Present monthly cost.")] = None


@expand_options
def savings(
    ctx: typer.Context, given: SavingsOptions, model: Model = "7B", at: Setting = EVERYWHERE,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """List savings in order, each with its expected effect, its condition, and what to measure afterwards.

    Savings multiply: each step applies to the cost that the earlier steps leave.
    """
    ask = Ask(ctx, at, given)
    monthly = None if given.monthly_usd is None else _parse_number(given.monthly_usd)
    parameters = _require_model(ask, model).parameters
    _show_answer(
        ask.terminal, saving.savings_advice(parameters, given.method, given.facts or (), monthly, ask.assumptions)
    )


DEPLOY_EXAMPLES = examples(
    "gpubroker advise deploy fine-tune 7B --tokens 50M --budget-usd 100 --write deployment",
    "gpubroker advise deploy serve 13B --requests-per-minute 600 --sensitive --assume tokens_per_request=300",
    "gpubroker advise deploy serve 8B --requests-per-minute 600 --sensitive --where residency=eu",
    "gpubroker advise deploy pretrain 70B --tokens 1.4T --deadline 8w --json",
)


@dataclass(frozen=True)
class DeployOptions:
    """The options of `deploy`."""

    tokens: Annotated[str | None, row("Training tokens, such as 50M.")] = None
    deadline_hours: Annotated[
        str | None, row("Time limit of the training, such as 8w or 36h.", "TIME", "--deadline")
    ] = None
    requests_per_minute: Annotated[str | None, row("Serving: requests per minute at peak.")] = None
    budget_usd: Annotated[
        str | None, typer.Option(metavar="USD", help="Budget of the run, or of a month of serving.")
    ] = None
    sensitive: Annotated[
        bool, typer.Option("--sensitive", help="Data stays on owned machines, or where --where allows.")
    ] = False
    write: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write job.yaml, policy.yaml and burst.yaml into it.")
    ] = None


@expand_options
def deploy(
    ctx: typer.Context,
    goal: Annotated[Goal, typer.Argument(metavar="fine-tune|pretrain|serve", help="Goal of the deployment.")],
    model: Model,
    given: DeployOptions,
    at: Setting = EVERYWHERE,
    as_json: AsJson = False,
) -> None:
    """Derive a job file and a policy file from requirements.

    Steps: supply and budget, model, hardware, own or rent, parallelism, savings, monitoring, carbon, review. Each step
    shows its rule and its figures. --assume method=lora (default: the cheapest), years, p95_s, prompt_tokens,
    hours_per_day, peak_to_baseline and location say more.
    """
    ask = Ask(ctx, at, given)
    subject = _require_model(ask, model)
    budget = None if given.budget_usd is None else _parse_number(given.budget_usd)
    if budget is not None and budget <= 0:
        raise InvalidInput(f"expected USD above 0; got {given.budget_usd}", where="--budget-usd")
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{goal.value}-{subject.parameters / 1e9:.3g}b")
    demand = DeployDemand(goal, subject, name, ask.assumptions.method, budget, given.sensitive, ask.places)
    advice = deployment(demand, ask.all_prices, ask.assumptions)
    files = {"job.yaml": advice.job_file, "policy.yaml": advice.policy_file, "burst.yaml": advice.burst_file}
    if given.write is not None:
        _write_files(ask.terminal, given.write, files)
        files = {}
    ask.terminal.result(advice, lambda: view.deployment_lines(advice, files))


def _write_files(terminal: Terminal, folder: Path, files: Mapping[str, str]) -> None:
    """Write new files. Raises `InvalidInput` if one exists or cannot be written."""
    for name, text in files.items():
        path = folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if text:
                with path.open("x", encoding="utf-8") as file:
                    file.write(text)
                terminal.say(f"wrote {path}")
        except FileExistsError as error:
            raise InvalidInput("exists and is not overwritten", where=str(path), hint="name another folder") from error
        except OSError as error:
            raise InvalidInput(f"cannot be written: {error.strerror}", where=str(path)) from error


RULES_EXAMPLES = examples("gpubroker advise rules", "gpubroker advise rules --failing --json")


@expand_options
def rules(
    ctx: typer.Context,
    failing: Annotated[bool, typer.Option("--failing", help="Only rules that do not hold.")] = False,
    at: Setting = EVERYWHERE,
    as_json: AsJson = False,
) -> None:
    """Compare quoted rules of thumb with the arithmetic and current prices: where they hold, and where they fail.

    Each rule is shown with the command that computes it for your own figures.
    """
    ask = Ask(ctx, at)
    advice = saving.rules_advice(ask.prices, ask.assumptions, only_refuted=failing)
    ask.terminal.result(advice, lambda: view.quoted_rule_lines(advice))


ASSUMPTIONS_EXAMPLES = examples(
    "gpubroker advise assumptions",
    "gpubroker advise assumptions owning",
    "gpubroker advise assumptions --assume kwh_usd=0.30 --json",
)


@expand_options
def assumptions(
    ctx: typer.Context,
    subject: Annotated[
        str | None, typer.Argument(metavar="SUBJECT", help="Only those about it, such as memory, owning or serving.")
    ] = None,
    at: Setting = EVERYWHERE,
    as_json: AsJson = False,
) -> None:
    """List the assumptions: name, value in force, unit, allowed values, and source.

    `--assume NAME=VALUE` of every `advise` command sets one; `assumptions:` of a policy file replaces defaults.
    """
    ask = Ask(ctx, at)
    rows = list_assumptions(ask.assumptions, subject)
    ask.terminal.result(rows, lambda: view.assumption_list(ask.terminal.out, rows))
