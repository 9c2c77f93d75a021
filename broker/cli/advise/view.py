"""Answers as text: their fields by name, with the units of their types; rows as tables, then rules and assumptions; as
charts: cost by hours in use, utilization by cluster size, the radar as bars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from rich.text import Text

from broker.app.advise.assumptions import AssumptionList
from broker.app.advise.buy_or_rent import BuyOrRentAdvice
from broker.app.advise.deploy.situation import DeployAdvice
from broker.app.advise.hardware import HardwareAdvice
from broker.app.advise.savings import RulesAdvice
from broker.app.advise.speed import SpeedAdvice
from broker.cli.render.charts.chart import Bars, Chart, Line
from broker.cli.render.formats import NOTHING
from broker.cli.render.tables import Column, fitting, hanging
from broker.core.documents import print_document
from broker.economics.figures import RuleCheck, Shown, about, count_text, digits

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


_MOST = 12  # rows of a table
_UNITS = ("usd", "gib", "gb", "s", "ms")  # at the end of names, which the values show
_WORDS = {"gpu": "GPU", "gpus": "GPUs", "usd": "$", "kwh": "kWh", "mfu": "MFU", "kusd": "$1,000", "80gb": "80 GB",
          "ai": "AI", "p95": "p95", "co2e": "CO2e", "tflops": "TFLOPS"}  # fmt: skip


def screen(console: Console, answer: Any) -> Iterator[RenderableType]:
    """The answer: its title, single figures, then what has several rows or parts of its own."""
    yield from _part(console, answer)
    yield from notes(answer.assumptions)


def notes(texts: Iterable[str]) -> Iterator[RenderableType]:
    """The assumptions of an answer."""
    for index, text in enumerate(dict.fromkeys(texts)):
        if not index:
            yield heading("Assumptions", " (set by --assume NAME=VALUE)")
        yield hanging(Text(f"· {text}"), 2)


def heading(text: str, more: str = "") -> Text:
    return Text.assemble((text, "bold"), more)


def figures(pairs: Iterable[tuple[str, str]]) -> Text:
    """Names and values in two columns."""
    rows = list(pairs)
    width = max((len(name) for name, _ in rows), default=0)
    text = Text()
    for index, (name, value) in enumerate(rows):
        text.append(f"{chr(10) if index else ''}  {name:<{width}}  ", style="dim")
        text.append(value)
    return text


def rules(checks: Iterable[RuleCheck]) -> Iterator[RenderableType]:
    """Quoted rules of thumb, each with the computed figures and whether it holds for them."""
    for index, check in enumerate(checks):
        if not index:
            yield heading("Rules of thumb")
        holds = ("holds", "green") if check.holds else ("does not hold here", "bold red")
        yield hanging(Text.assemble(f"· {check.rule}: ", holds, f"; {check.says}"), 2)


def label(name: str) -> str:
    """``per_gpu_gib`` → ``per GPU``, ``usd_per_hour`` → ``$ per hour``."""
    words = name.split("_")
    if len(words) > 1 and words[-1] in _UNITS:
        words = words[:-1]
    return " ".join(_WORDS.get(word, word) for word in words)


def value_text(value: Any, shown: Shown = Shown()) -> str:  # noqa: B008  # it never changes
    """A value of a field, as its type says."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return str(value.value).replace("_", " ")
    if isinstance(value, tuple | list):
        return "; ".join(map(value_text, value))
    if not isinstance(value, int | float):
        return value.text if hasattr(value, "text") else str(value)
    if shown.unit == "count":
        return count_text(value)
    if shown.unit == "$":
        return f"${value:,.6f}" if shown.exact else about(value)
    if shown.unit == "%":
        return f"{value:.1%}"
    number = f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if abs(value) >= 1e9 else digits(value)
    return f"{number} {shown.unit}".rstrip()


def _members(part: Any) -> Iterator[tuple[str, Shown, Any]]:
    """The visible fields with their values; empty ones are left out."""
    hints = get_type_hints(type(part), include_extras=True)
    for field in fields(part):
        value, shown = getattr(part, field.name), _shown(hints[field.name])
        if not shown.hidden and value not in (None, "", (), {}) and field.name not in ("assumptions", "title"):
            yield field.name, shown, value


def _shown(hint: Any) -> Shown:
    """How the type says that people see a value: also of a union with None."""
    if get_origin(hint) is Annotated:
        return next((one for one in get_args(hint)[1:] if isinstance(one, Shown)), Shown())
    return next((found for one in get_args(hint) if (found := _shown(one)) != Shown()), Shown())


def _part(console: Console, part: Any) -> Iterator[RenderableType]:
    title, _, more = getattr(part, "title", "").partition(": ")
    if title:
        yield heading(title, f": {more}" if more else "")
    pairs: list[tuple[str, str]] = []
    later: list[tuple[str, Any]] = []
    _sort(part, pairs, later)
    if pairs:
        yield figures(pairs)
    for name, value in later:
        if isinstance(value, Mapping):
            yield heading(label(name).capitalize(), " of a job file")
            yield hanging(Text(print_document(value).rstrip()), 2)
        elif not isinstance(value, tuple):
            yield from _part(console, value)
        elif isinstance(value[0], RuleCheck):
            yield from rules(value)
        else:
            yield from _table(console, name, value)


def _sort(part: Any, pairs: list[tuple[str, str]], later: list[tuple[str, Any]]) -> None:
    """The members of a part: single figures, also of parts without a title, and what comes after them."""
    for name, shown, value in _members(part):
        if isinstance(value, Mapping) or _has_rows(value) or (hasattr(value, "title") and is_dataclass(value)):
            later.append((name, value))
        elif is_dataclass(value) and not hasattr(value, "text"):
            _sort(value, pairs, later)
        elif value or not isinstance(value, float):
            pairs.append((label(name), value_text(value, shown)))


def _has_rows(value: Any) -> bool:
    return isinstance(value, tuple) and is_dataclass(value[0])


def _table(console: Console, name: str, rows: tuple[Any, ...]) -> Iterator[RenderableType]:
    """The first rows; on a narrow terminal the last columns are hidden first."""
    columns: dict[str, Column] = {}
    cells: list[dict[str, str]] = []
    for row in rows[:_MOST]:
        cells.append({})
        for field, shown, value in _flat(row):
            right = isinstance(value, int | float) and not isinstance(value, bool)
            columns.setdefault(field, Column(label(field), len(columns), "right" if right else "left"))
            cells[-1][field] = value_text(value, shown)
    more = len(rows) - _MOST
    yield heading(label(name).capitalize())
    footer = [f"{more} more: use --json for all"] if more > 0 else []
    yield fitting(
        console, list(columns.values()), [[row.get(field, "") for field in columns] for row in cells], *footer
    )


def _flat(row: Any) -> Iterator[tuple[str, Shown, Any]]:
    """The members of a row, and in place of a part without a text of its own the members of that."""
    for name, shown, value in _members(row):
        if is_dataclass(value) and not hasattr(value, "text"):
            yield from _flat(value)
        else:
            yield name, shown, value


def quoted(found: RulesAdvice) -> Iterator[RenderableType]:
    """Quoted rules by topic, each with its verdict and the command that computes it."""
    yield heading(found.title)
    topic = ""
    for one in found.rules_of_thumb:
        if one.topic != topic:
            topic = one.topic
            yield Text(topic.capitalize(), "bold cyan")
        holds = {True: ("holds", "green"), False: ("does not hold", "bold red"), None: ("not known", "yellow")}
        yield hanging(Text.assemble(f"· {one.rule}: ", holds[one.holds]), 2)
        yield hanging(Text(one.says), 4)
        if one.holds is False and one.fails:
            yield hanging(Text(f"why: {one.fails}"), 4)
        yield hanging(Text(one.command, "dim"), 4)
    yield from notes(found.assumptions)


def deployment(found: DeployAdvice, files: Mapping[str, str]) -> Iterator[RenderableType]:
    """The steps of a deployment. ``files``: the texts that were not written, by their names."""
    yield heading(found.title)
    yield from (hanging(Text.assemble(("warning: ", "yellow"), warning), 0) for warning in found.warnings)
    for number, step in enumerate(found.steps, 1):
        yield Text.assemble((f"{number}. {step.step}", "bold cyan"), (f"  {step.rule}", "dim"))
        known = {name: value for name, value in step.numbers.items() if value is not None}
        shown = {name: Shown("$" if "usd" in name.split("_") else "") for name in known}
        if known:
            pairs = ((label(name), value_text(value, shown[name])) for name, value in known.items())
            yield hanging(figures(pairs), 1)
        yield hanging(Text.assemble("→ ", (step.decision, "bold")), 3)
    yield from notes(found.assumptions)
    for name, text in files.items():
        if text:
            yield heading(name)
            yield hanging(Text(text.rstrip()), 2)


def assumption_list(console: Console, found: AssumptionList) -> Iterator[RenderableType]:
    """The table of assumptions, a part for each subject."""
    for subject in dict.fromkeys(one.subject for one in found.assumptions):
        rows = [one for one in found.assumptions if one.subject == subject]
        columns = [
            Column("name"),
            Column("value"),
            Column("unit", 2),
            Column("range", 1),
            Column("source", 3, folds=True),
        ]
        yield heading(subject.capitalize())
        cells = [
            (one.name, "" if one.value is None else f"{value_text(one.value)}{' *' * one.changed}", one.unit, one.range,
             one.source)
            for one in rows
        ]  # fmt: skip
        yield fitting(console, columns, cells)
    yield Text("empty: derived from other inputs; *: not the default", style="dim")


_POINTS = 60  # of a curve


def costs_by_hours(found: BuyOrRentAdvice) -> Chart:
    """The present values of owning and of the cheapest rent, over the hours in use per day."""
    hours = [one.hours_per_day for one in found.by_hours]
    return Chart(
        title="Owning and renting",
        x_label="hours in use per day",
        y_label="USD, present value",
        lines=(
            Line("owning", hours, [one.owned_usd for one in found.by_hours]),
            Line("renting", hours, [one.rented_usd for one in found.by_hours]),
        ),
        note=found.comparison.why,
    )


def utilization_by_size(found: SpeedAdvice) -> list[Chart]:
    """Utilization over cluster size, with the cheapest size and diminishing returns marked; none without sizes."""
    scaling = found.scaling
    if scaling is None:
        return []
    first, last = scaling.sizes[0].gpus, scaling.sizes[-1].gpus
    xs = [first + index * (last - first) / _POINTS for index in range(_POINTS + 1)]
    lines = [Line("utilization", xs, [scaling.model.speedup(x) / x * 100 for x in xs])]
    for name, gpus in (("cheapest on time", scaling.efficient_gpus), ("diminishing returns", scaling.diminishing_gpus)):
        if gpus is not None:
            height = scaling.model.speedup(gpus) / gpus * 100
            lines.append(Line(f"{name}: {gpus} GPUs", [float(gpus), float(gpus)], [0.0, height]))
    return [
        Chart(
            title=f"Utilization of {found.gpu} clusters",
            x_label="GPUs",
            y_label="utilization, % of perfect scaling",
            lines=lines,
            note="; ".join(found.assumptions),
        )
    ]


def radar(found: HardwareAdvice) -> Chart:
    """The radar as bars, because terminals cannot draw a radar chart."""
    rows = found.radar[:8]
    axes = ("cost", "performance", "energy_efficiency", "maturity")
    heights = {axis: [getattr(row, axis) for row in rows] for axis in axes}
    return Chart(
        title="Hardware compared",
        x_label="accelerator",
        y_label="share of the best, 0 to 1",
        bars=[
            Bars(axis.replace("_", " "), [row.accelerator for row in rows], [v and round(v, 2) for v in values])
            for axis, values in heights.items()
        ],
        note=f"cost is performance per dollar of {found.per}; best scores first",
    )
