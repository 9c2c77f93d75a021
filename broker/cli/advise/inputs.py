"""Options shared by the `advise` commands, and their parsers: models, prices, numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli import completion
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.app.advise.places import Places
    from broker.app.advise.prices import CurrentPrices, Quote
    from broker.app.advise.subject import Subject
    from broker.cli.terminal import Terminal
    from broker.core.market.offers import CapacityType
    from broker.economics.assumptions import Assumptions

_SCIENTIFIC = re.compile(r"\d+(?:\.\d+)?[eE]\+?\d{1,3}", re.ASCII)


def count(text: str | float) -> float:
    """``7B``, ``350M``, ``7e9``, ``7000000000``. Raises `typer.BadParameter`."""
    from broker.core.values.units import parse_count

    text = str(text).strip()  # a default is already a number
    try:
        return parse_count(f"{float(text):.0f}" if _SCIENTIFIC.fullmatch(text) else text)
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(str(error)) from error


def dollars(text: str | float) -> float:
    """``12000``, ``$12,000``, ``5.12``. Raises `typer.BadParameter`. The caller checks for zero and negative values."""
    plain = str(text).strip().removesuffix("USD").strip().replace("$", "", 1)
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", plain):
        plain = plain.replace(",", "")
    try:
        return float(plain)
    except ValueError as error:
        raise typer.BadParameter(f"expected an amount in USD, such as 12000 or $12,000; got {plain[:40]!r}") from error


def usd(help: str) -> Any:
    """An option whose value is an amount in USD. The parameter's name becomes the flag."""
    return typer.Option(parser=dollars, metavar="USD", help=help)


RULES = "gpubroker.advise.rules"  # the key in a command's context that has the file's path

Parameters = Annotated[
    float | None,
    typer.Option("--parameters", metavar="COUNT", parser=count, help="Number of model parameters, such as 7B."),
]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Local file: the model's Hugging Face config.json.")
]
Layers = Annotated[int | None, typer.Option("--layers", metavar="N", help="Number of layers.")]
Hidden = Annotated[int | None, typer.Option("--hidden", metavar="N", help="Hidden size.")]
Heads = Annotated[int | None, typer.Option("--heads", metavar="N", help="Number of attention heads.")]
KvHeads = Annotated[int | None, typer.Option("--kv-heads", metavar="N", help="Number of key-value heads.")]
HeadDim = Annotated[int | None, typer.Option("--head-dim", metavar="N", help="Dimension of one head.")]
Gpu = Annotated[
    str | None,
    typer.Option("--gpu", "-g", metavar="NAME", autocompletion=completion.gpus, help="Accelerator, such as H100."),
]
OneGpu = Annotated[
    str, typer.Option("--gpu", "-g", metavar="NAME", autocompletion=completion.gpus, help="Accelerator.")
]
Gpus = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu", "-g", metavar="NAME", autocompletion=completion.gpus, help="Only this accelerator. Repeatable."
    ),
]
Price = Annotated[
    list[str] | None,
    typer.Option(
        "--price",
        metavar="[NAME=]USD",
        help="USD per GPU-hour instead of the market's, such as 2.50 or H100=2.50. Repeatable.",
    ),
]


def thumb(context: typer.Context) -> Assumptions:
    """The rules of thumb in force: those of ``gpubroker advise --rules FILE``, then those of the active policies, then
    the defaults. Raises `InvalidInput` for an invalid file."""
    from broker.app.advise.rules_of_thumb import active
    from broker.cli.terminal import Terminal
    from broker.economics.assumptions import replaced

    terminal = Terminal.of(context)
    rules = active(terminal.settings().store_url, lambda: terminal.broker(look_after=False))
    path: Path | None = context.meta.get(RULES)
    if path is None:
        return rules
    from broker.core.documents import MAX_BYTES, read_document

    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=str(path)) from error
    return replaced(read_document(text, file=str(path), kind="file of rules").data, str(path), rules)


def measured(terminal: Terminal, rules: Assumptions) -> Assumptions:
    """The rules with the speeds that were measured in the recorded, finished runs; unchanged without a store."""
    from datetime import UTC, datetime, timedelta

    from broker.store.quick_queries import is_missing, ran

    url = terminal.settings().store_url
    if is_missing(url) or ran(url, datetime.now(UTC) - timedelta(days=90)) == ():
        return rules
    from broker.app.advise.measured import measured

    opened = terminal.broker(look_after=False)
    with opened.store.reading() as look:
        return measured(look, rules, opened.clock.now())


@dataclass(frozen=True)
class ModelOptions:
    """The model: its size, and its architecture, from a file or from single options."""

    parameters: Parameters = None
    config: Config = None
    layers: Layers = None
    hidden: Hidden = None
    heads: Heads = None
    kv_heads: KvHeads = None
    head_dim: HeadDim = None

    @property
    def known(self) -> bool:
        """Whether the options name a model at all."""
        return self.parameters is not None or self.config is not None

    def subject(self, parameters: float | None = None, active: float | None = None) -> Subject:
        """The model; ``parameters``: the size, where no option states it. Raises `InvalidInput`."""
        from broker.app.advise.subject import Architecture, subject
        from broker.economics.units import whole

        said = {name: getattr(self, name) for name in ("layers", "hidden", "heads", "kv_heads", "head_dim")}
        for name, value in said.items():
            if value is not None:
                whole(f"--{name.replace('_', '-')}", value)
        parameters = parameters if self.parameters is None else self.parameters
        return subject(parameters, self.config, Architecture(**said), active)


@dataclass(frozen=True)
class PlaceOptions:
    """Where capacity may be."""

    provider: Annotated[
        list[str] | None, typer.Option("--provider", metavar="NAME", help="Only this provider. Repeatable.")
    ] = None
    region: Annotated[
        list[str] | None,
        typer.Option(
            "--region", metavar="PATTERN", help="Only these regions, such as 'eu-*' or 'aws/eu-*'. Repeatable."
        ),
    ] = None
    residency: Annotated[
        str | None, typer.Option("--residency", metavar="EU|US", help="Only regions of that territory, by their names.")
    ] = None
    compliance: Annotated[
        list[str] | None,
        typer.Option(
            "--compliance",
            metavar="NAME",
            help="Only providers with which you have that agreement (\\[agreements] in gpubroker.toml). Repeatable.",
        ),
    ] = None

    @property
    def only_provider(self) -> str | None:
        """The provider, if the options name one alone."""
        return self.provider[0] if self.provider and len(self.provider) == 1 else None

    def places(self, terminal: Terminal) -> Places:
        """The places, by the agreements of the settings. Raises `UnknownName`, `InvalidInput`."""
        from broker.app.advise.places import places_of

        agreements = terminal.settings().agreements if self.compliance else {}
        return places_of(self.provider, self.region, self.residency, self.compliance or (), agreements)


ANYWHERE = PlaceOptions()


@dataclass(frozen=True)
class PriceOptions:
    """Which prices count."""

    price: Price = None
    where: PlaceOptions = ANYWHERE

    def market(self, terminal: Terminal, only: str | None = None) -> CurrentPrices:
        """Current prices, as `market`."""
        return market(terminal, self.price, only, self.where.places(terminal))

    def rent(
        self, terminal: Terminal, gpu: str | None, instead: str, kind: CapacityType | None = None, missing: str = ""
    ) -> Quote:
        """The cheapest price of a GPU-hour of that kind (default: on demand). Raises `InvalidInput` if none is known,
        or no ``gpu`` is given. ``instead``: the option that states a price; ``missing``: what else would do."""
        from broker.core.market.offers import CapacityType
        from broker.core.values.accelerators import canonical

        if gpu is None:
            raise InvalidInput("the price is missing", hint=missing or f"give {instead}, or --gpu to look it up")
        name = canonical(gpu)
        found = self.market(terminal, name).gpu_hour(name, kind or CapacityType.ON_DEMAND)
        if found is None:
            what = f"{kind.value.replace('_', '-')} price" if kind else "price"
            hint = f"run `gpubroker prices poll`, or give {instead} or --price"
            raise InvalidInput(f"no {what} of {name} is known", hint=hint)
        return found


@dataclass(frozen=True)
class GpuOptions:
    """Which accelerators are compared, at which prices."""

    gpu: Gpus = None
    at: PriceOptions = PriceOptions()

    def market(self, terminal: Terminal) -> CurrentPrices:
        """Current prices; one without a name is that of the only accelerator."""
        return self.at.market(terminal, self.gpu[0] if self.gpu and len(self.gpu) == 1 else None)


ANY_PRICE, ANY_GPU = PriceOptions(), GpuOptions()


def market(
    terminal: Terminal, stated: list[str] | None = None, only: str | None = None, places: Places | None = None
) -> CurrentPrices:
    """Current prices; ``stated`` prices take precedence. ``only``: the accelerator of a price without a name;
    ``places``: where.

    Raises `InvalidInput` for an invalid price, `UnknownName` for an unknown accelerator or provider.
    """
    from datetime import UTC, datetime

    from broker.app.advise.places import check_providers
    from broker.app.advise.prices import known

    own = stated_prices(stated, only)
    now, opened = datetime.now(UTC), partial(terminal.broker, look_after=False)
    found = known(terminal.settings().store_url, now, opened, places)
    if places is not None and places.providers and not found.rows:
        offering = {row.provider for row in known(terminal.settings().store_url, now, opened).rows}
        check_providers(places.providers, {*opened().registries.providers, *offering})
    if places is not None and places.limited and not found.rows:
        terminal.say("no price is known within --provider, --region, --residency and --compliance")
    return found.with_stated(own)


def with_held(terminal: Terminal, prices: CurrentPrices, rules: Assumptions) -> CurrentPrices:
    """The prices, to which the recorded capacity is added at its marginal cost."""
    from dataclasses import replace
    from datetime import UTC, datetime

    from broker.app.advise.prices import held

    opened = partial(terminal.broker, look_after=False)
    found = held(terminal.settings().store_url, datetime.now(UTC), opened, rules.kwh_usd, rules.pue)
    return replace(prices, held=found)


def stated_prices(stated: list[str] | None, only: str | None = None) -> dict[str, float]:
    """``H100=2.5`` by accelerator; a bare price is for ``only``."""
    from broker.core.values.accelerators import canonical
    from broker.economics.units import positive

    found = {}
    for text in stated or ():
        name, separator, amount = text.rpartition("=")
        if not separator and only is None:
            raise InvalidInput(f"--price {text} names no accelerator; write it as H100={text}")
        found[canonical(name or only or "")] = positive("--price", dollars(amount), "USD per GPU-hour")
    return found
