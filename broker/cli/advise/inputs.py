"""What the `advise` commands share: the model, accelerators, prices and places, and the assumptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.app.advise.model_job import load_subject
from broker.app.advise.prices import (
    RESIDENCIES,
    CurrentPrices,
    Places,
    check_providers,
    current_prices,
    held_gpus,
    resolve_places,
)
from broker.app.assumptions import load_assumptions, with_measurements
from broker.cli import completion
from broker.cli.filters import RowFilter
from broker.cli.terminal import Terminal
from broker.core.documents import MAX_BYTES, read_document
from broker.core.errors import InvalidInput
from broker.core.market.accelerators import canonical
from broker.economics.assumptions import Assumptions, number_of, override, table
from broker.store import is_missing

if TYPE_CHECKING:
    from broker.economics.memory import Subject

_MODEL = "Number of parameters, such as 7B, or a local Hugging Face config.json."
Model = Annotated[str, typer.Argument(metavar="MODEL", help=_MODEL)]
AnyModel = Annotated[str | None, typer.Argument(metavar="MODEL", help=_MODEL)]
Gpu = Annotated[
    str | None,
    typer.Option("--gpu", "-g", metavar="NAME", autocompletion=completion.gpus, help="Accelerator, such as H100."),
]
Gpus = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu", "-g", metavar="NAME", autocompletion=completion.gpus, help="Only this accelerator. Repeatable."
    ),
]


PLACES = RowFilter(
    provider=completion.providers,
    region=completion.regions,
    residency=lambda _, incomplete: [name for name in RESIDENCIES if name.startswith(incomplete)],
    compliance=lambda *_: [],  # the names in [agreements] of gpubroker.toml
)


def row(help: str, metavar: str = "N", *flags: str) -> Any:
    """An option that sets the assumption of its parameter's name; the table says which values it may have."""
    return typer.Option(*flags, metavar=metavar, help=help)


@dataclass(frozen=True)
class Setting:
    """Options shared by all commands that look up prices."""

    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]USD",
            help="USD per GPU-hour instead of the market's, such as 2.50 or H100=2.50. Repeatable.",
        ),
    ] = None
    where: Annotated[list[str] | None, PLACES.option] = None
    assume: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Set an assumption (`gpubroker advise assumptions` lists them), or several by a YAML file. "
            "Repeatable.",
        ),
    ] = None


EVERYWHERE = Setting()


class Ask:
    """One question: its assumptions, and current prices, which are looked up when they are needed. ``given``: options,
    of which those that are named as assumptions set them; ``gpus``: the accelerators that are named."""

    def __init__(
        self, context: typer.Context, setting: Setting, given: object = None, gpus: list[str] | str | None = None
    ) -> None:
        self.terminal = Terminal.of(context)
        self._option_of = {each.name: each.opts[0] for each in context.command.params}
        self._setting = setting
        self._given = given
        self.gpus = []
        for text in [gpus] if isinstance(gpus, str) else gpus or ():
            name, colon, count = text.partition(":")
            if colon:
                number = f" --gpus {count}" if any("--gpus" in each.opts for each in context.command.params) else ""
                hint = f"write --gpu {name}{number}"
                raise InvalidInput(f"expected the name of an accelerator; got {text!r}", where="--gpu", hint=hint)
            self.gpus.append(canonical(name))

    @cached_property
    def assumptions(self) -> Assumptions:
        """The table: as the active policies and finished runs say, then as this command says. Raises `InvalidInput`
        and `UnknownName` for what is not in the table."""
        values = stated_assumptions(self._setting.assume)
        names = [field.name for field in fields(self._given)] if self._given else []  # type: ignore[arg-type]  # a dataclass
        options = {name: getattr(self._given, name) for name in names}
        base = override_stated(values, self._with_measurements(load_assumptions(self._url, self._opened)))
        for name in table().keys() & options.keys():
            if options[name] is not None:
                base = override({name: options[name]}, where=self._option_of[name], base=base)
                values[name] = options[name]
        return replace(base, stated=frozenset(values))

    def model(self, text: str | None) -> Subject | None:
        """The model that the text names."""
        return None if text is None else load_subject(text, self.assumptions)

    @cached_property
    def places(self) -> Places:
        """Where capacity may be. Raises `UnknownName`, `InvalidInput`."""
        filters = PLACES.read(self._setting.where)
        agreements = self.terminal.settings().agreements if "compliance" in filters else {}
        keys = ("provider", "region", "residency", "compliance")
        providers, regions, residencies, compliance = (filters.get(key, []) for key in keys)
        return resolve_places(providers, regions, residencies, compliance, agreements)

    @cached_property
    def prices(self) -> CurrentPrices:
        """Current prices; stated ones take precedence, and one without a name is that of the only accelerator.

        Raises `InvalidInput` for an invalid price, `UnknownName` for an unknown accelerator or provider.
        """
        places, now = self.places, datetime.now(UTC)
        current = current_prices(self._url, now, self._opened, places)
        if places.providers and not current.offers:
            everywhere = current_prices(self._url, now, self._opened).offers.values()
            offering = {offer.provider for offers in everywhere for offer in offers}
            check_providers(places.providers, {*self._opened().registries.providers, *offering})
        if places.limited and not current.offers:
            self.terminal.say("no price is known in the places of --where")
        return current.with_stated(self._stated_prices())

    @property
    def all_prices(self) -> CurrentPrices:
        """The prices, to which the recorded capacity is added at its marginal cost."""
        kwh, pue = self.assumptions.kwh_usd, self.assumptions.pue
        return replace(self.prices, held=held_gpus(self._url, datetime.now(UTC), self._opened, kwh, pue))

    @cached_property
    def _url(self) -> str:
        return self.terminal.settings().store_url

    @property
    def _opened(self) -> Any:
        return partial(self.terminal.broker, look_after=False)

    def _with_measurements(self, assumptions: Assumptions) -> Assumptions:
        """With what the recorded, finished runs measured; unchanged without a store."""
        if is_missing(self._url):
            return assumptions
        broker = self._opened()
        with broker.store.reading() as reader:
            return with_measurements(reader, assumptions, broker.clock.now())

    def _stated_prices(self) -> dict[str, float]:
        """``H100=2.5`` by accelerator; a price without a name is that of the only accelerator."""
        price_by_name = {}
        for price_text in self._setting.price or ():
            name, separator, amount = price_text.rpartition("=")
            if not separator and len(self.gpus) != 1:
                raise InvalidInput(f"--price {price_text} names no accelerator; write it as H100={price_text}")
            try:
                usd = number_of(amount)
                if usd <= 0:
                    raise ValueError
            except ValueError as error:
                raise InvalidInput(
                    f"expected USD per GPU-hour above 0; got {amount[:40]!r}", where="--price"
                ) from error
            price_by_name[canonical(name) if separator else self.gpus[0]] = usd
        return price_by_name


def stated_assumptions(assignments: Sequence[str] | None) -> dict[str, object]:
    """What ``--assume`` says: ``NAME=VALUE``, or YAML files. Raises `InvalidInput`."""
    values: dict[str, object] = {}
    for assignment in assignments or ():
        name, equals, value = assignment.partition("=")
        if equals:
            values[name.strip()] = value.strip()
        elif not Path(assignment).exists() and not Path(assignment).suffix:
            raise InvalidInput(f"expected NAME=VALUE, or a YAML file; got {assignment[:40]!r}", where="--assume")
        else:
            values |= _read_assumptions(Path(assignment))
    return values


def override_stated(values: Mapping[str, object], base: Assumptions) -> Assumptions:
    """``base`` with what ``--assume`` says. Raises `InvalidInput` and `UnknownName`."""
    for name, value in values.items():
        base = override({name: value}, where=f"--assume {name}", base=base)
    return base


def _read_assumptions(path: Path) -> dict[str, object]:
    """Assumptions of a YAML file."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=str(path)) from error
    return dict(read_document(text, file=str(path), kind="file of assumptions").data)
