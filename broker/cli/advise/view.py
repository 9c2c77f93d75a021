"""Answers as text: their fields by name, with the units of their types; rows as tables, then rules and assumptions; as
charts: cost by hours in use, utilization by cluster size, the radar."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from rich.console import Console, RenderableType
from rich.text import Text

from broker.cli.render.charts.chart import Bars, Chart, Line
from broker.cli.render.formats import NO_VALUE
from broker.cli.render.tables import Column, build_cell_table, indent_text
from broker.core.documents import print_document
from broker.economics.figures import DisplayFormat, RuleCheck, count_text, number_text, usd_text

if TYPE_CHECKING:
    from broker.app.advise.buy_or_rent import BuyOrRentAdvice
    from broker.app.advise.deploy.situation import DeployAdvice
    from broker.app.advise.hardware import HardwareAdvice
    from broker.app.advise.savings import RulesAdvice
    from broker.app.advise.speed import SpeedAdvice
    from broker.app.assumptions import AssumptionList


_MAX_ROWS = 12  # rows of a table
_UNITS = ("usd", "gib", "gb", "s", "ms")  # at the end of names, which the values show
_WORDS = {"gpu": "GPU", "gpus": "GPUs", "usd": "$", "kwh": "kWh", "mfu": "MFU", "kusd": "$1,000", "80gb": "80 GB",
          "ai": "AI", "p95": "p95", "co2e": "CO2e", "tflops": "TFLOPS"}  # fmt: skip


def advice_lines(console: Console, answer: Any) -> Iterator[RenderableType]:
    """The answer: its title, single figures, then what has several rows or parts of its own."""
    yield from _part_lines(console, answer)
    yield from notes(answer.assumptions)


def notes(assumptions: Iterable[str]) -> Iterator[RenderableType]:
    """The assumptions of an answer."""
    for index, assumption in enumerate(dict.fromkeys(assumptions)):
        if not index:
            yield heading("Assumptions", " (set by --assume NAME=VALUE)")
        yield indent_text(Text(f"· {assumption}"), 2)


def heading(text: str, suffix: str = "") -> Text:
    return Text.assemble((text, "bold"), suffix)


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
        yield indent_text(Text.assemble(f"· {check.rule}: ", holds, f"; {check.says}"), 2)


def label(name: str) -> str:
    """``per_gpu_gib`` → ``per GPU``, ``usd_per_hour`` → ``$ per hour``."""
    parts = name.split("_")
    if len(parts) > 1 and parts[-1] in _UNITS:
        parts = parts[:-1]
    return " ".join(_WORDS.get(word, word) for word in parts)


def value_text(value: Any, display: DisplayFormat = DisplayFormat()) -> str:  # noqa: B008  # it never changes
    """A value of a field, as its type says."""
    if value is None:
        return NO_VALUE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return str(value.value).replace("_", " ")
    if isinstance(value, tuple | list):
        return "; ".join(map(value_text, value))
    if not isinstance(value, int | float):
        return value.text if hasattr(value, "text") else str(value)
    if display.unit == "count":
        return count_text(value)
    if display.unit == "$":
        return f"${value:,.6f}" if display.exact else usd_text(value)
    if display.unit == "%":
        return f"{value:.1%}"
    number = f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if abs(value) >= 1e9 else number_text(value)
    return f"{number} {display.unit}".rstrip()


def _visible_members(part: Any) -> Iterator[tuple[str, DisplayFormat, Any]]:
    """The visible fields with their values; empty ones are left out."""
    hints = get_type_hints(type(part), include_extras=True)
    for field in fields(part):
        value, display = getattr(part, field.name), _display_format(hints[field.name])
        if not display.hidden and value not in (None, "", (), {}) and field.name not in ("assumptions", "title"):
            yield field.name, display, value


def _display_format(hint: Any) -> DisplayFormat:
    """How the type says that people see a value: also of a union with None."""
    if get_origin(hint) is Annotated:
        return next(
            (hint_argument for hint_argument in get_args(hint)[1:] if isinstance(hint_argument, DisplayFormat)),
            DisplayFormat(),
        )
    return next(
        (display for hint_argument in get_args(hint) if (display := _display_format(hint_argument)) != DisplayFormat()),
        DisplayFormat(),
    )


def _part_lines(console: Console, part: Any) -> Iterator[RenderableType]:
    title, _, subtitle = getattr(part, "title", "").partition(": ")
    if title:
        yield heading(title, f": {subtitle}" if subtitle else "")
    pairs: list[tuple[str, str]] = []
    nested: list[tuple[str, Any]] = []
    _split_members(part, pairs, nested)
    if pairs:
        yield figures(pairs)
    for name, value in nested:
        if isinstance(value, Mapping):
            yield heading(label(name).capitalize(), " of a job file")
            yield indent_text(Text(print_document(value).rstrip()), 2)
        elif not isinstance(value, tuple):
            yield from _part_lines(console, value)
        elif isinstance(value[0], RuleCheck):
            yield from rules(value)
        else:
            yield from _table_lines(console, name, value)


def _split_members(part: Any, pairs: list[tuple[str, str]], nested: list[tuple[str, Any]]) -> None:
    """The members of a part: single figures, also of parts without a title, and what comes after them."""
    for name, display, value in _visible_members(part):
        if isinstance(value, Mapping) or _has_rows(value) or (hasattr(value, "title") and is_dataclass(value)):
            nested.append((name, value))
        elif is_dataclass(value) and not hasattr(value, "text"):
            _split_members(value, pairs, nested)
        elif value or not isinstance(value, float):
            pairs.append((label(name), value_text(value, display)))


def _has_rows(value: Any) -> bool:
    return isinstance(value, tuple) and is_dataclass(value[0])


def _table_lines(console: Console, name: str, rows: tuple[Any, ...]) -> Iterator[RenderableType]:
    """The first rows; on a narrow terminal the last columns are hidden first."""
    columns: dict[str, Column] = {}
    cells: list[dict[str, str]] = []
    for row in rows[:_MAX_ROWS]:
        cells.append({})
        for field, display, value in _flat_members(row):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            columns.setdefault(field, Column(label(field), len(columns), "right" if is_number else "left"))
            cells[-1][field] = value_text(value, display)
    hidden_count = len(rows) - _MAX_ROWS
    yield heading(label(name).capitalize())
    footer = [f"{hidden_count} more: use --json for all"] if hidden_count > 0 else []
    yield build_cell_table(
        console, list(columns.values()), [[row.get(field, "") for field in columns] for row in cells], *footer
    )


def _flat_members(row: Any) -> Iterator[tuple[str, DisplayFormat, Any]]:
    """The members of a row, and in place of a part without a text of its own the members of that."""
    for name, display, value in _visible_members(row):
        if is_dataclass(value) and not hasattr(value, "text"):
            yield from _flat_members(value)
        else:
            yield name, display, value


def quoted_rule_lines(advice: RulesAdvice) -> Iterator[RenderableType]:
    """Quoted rules by topic, each with its verdict and the command that computes it."""
    yield heading(advice.title)
    topic = ""
    for quoted_rule in advice.rules_of_thumb:
        if quoted_rule.topic != topic:
            topic = quoted_rule.topic
            yield Text(topic.capitalize(), "bold cyan")
        verdicts = {True: ("holds", "green"), False: ("does not hold", "bold red"), None: ("not known", "yellow")}
        yield indent_text(Text.assemble(f"· {quoted_rule.rule}: ", verdicts[quoted_rule.holds]), 2)
        yield indent_text(Text(quoted_rule.says), 4)
        if quoted_rule.holds is False and quoted_rule.fails:
            yield indent_text(Text(f"why: {quoted_rule.fails}"), 4)
        yield indent_text(Text(quoted_rule.command, "dim"), 4)
    yield from notes(advice.assumptions)


def deployment_lines(advice: DeployAdvice, files: Mapping[str, str]) -> Iterator[RenderableType]:
    """The steps of a deployment. ``files``: the texts that were not written, by their names."""
    yield heading(advice.title)
    yield from (indent_text(Text.assemble(("warning: ", "yellow"), warning), 0) for warning in advice.warnings)
    for number, step in enumerate(advice.steps, 1):
        yield Text.assemble((f"{number}. {step.step}", "bold cyan"), (f"  {step.rule}", "dim"))
        known_figures = {name: value for name, value in step.numbers.items() if value is not None}
        displays = {name: DisplayFormat("$" if "usd" in name.split("_") else "") for name in known_figures}
        if known_figures:
            pairs = ((label(name), value_text(value, displays[name])) for name, value in known_figures.items())
            yield indent_text(figures(pairs), 1)
        yield indent_text(Text.assemble("→ ", (step.decision, "bold")), 3)
    yield from notes(advice.assumptions)
    for name, text in files.items():
        if text:
            yield heading(name)
            yield indent_text(Text(text.rstrip()), 2)


def assumption_list(console: Console, listing: AssumptionList) -> Iterator[RenderableType]:
    """The table of assumptions, a part for each subject."""
    for subject in dict.fromkeys(listed.subject for listed in listing.assumptions):
        rows = [listed for listed in listing.assumptions if listed.subject == subject]
        columns = [
            Column("name"),
            Column("value"),
            Column("unit", 2),
            Column("range", 1),
            Column("source", 3, folds=True),
        ]
        yield heading(subject.capitalize())
        cells = [
            (
                listed.name,
                "" if listed.value is None else f"{value_text(listed.value)}{' *' * listed.changed}",
                listed.unit,
                listed.range,
                listed.source,
            )
            for listed in rows
        ]
        yield build_cell_table(console, columns, cells)
    yield Text("empty: derived from other inputs; *: not the default", style="dim")


_POINTS = 60  # of a curve


def costs_by_hours(advice: BuyOrRentAdvice) -> Chart:
    """The present values of owning and of the cheapest rent, over the hours in use per day."""
    hours = [hours_cost.hours_per_day for hours_cost in advice.by_hours]
    return Chart(
        title="Owning and renting",
        x_label="hours in use per day",
        y_label="USD, present value",
        lines=(
            Line("owning", hours, [hours_cost.owned_usd for hours_cost in advice.by_hours]),
            Line("renting", hours, [hours_cost.rented_usd for hours_cost in advice.by_hours]),
        ),
        note=advice.comparison.why,
    )


def utilization_by_size(advice: SpeedAdvice) -> list[Chart]:
    """Utilization over cluster size, with the cheapest size and diminishing returns marked; none without sizes."""
    scaling = advice.scaling
    if scaling is None:
        return []
    smallest, largest = scaling.sizes[0].gpus, scaling.sizes[-1].gpus
    xs = [smallest + index * (largest - smallest) / _POINTS for index in range(_POINTS + 1)]
    lines = [Line("utilization", xs, [scaling.model.speedup(x) / x * 100 for x in xs])]
    for name, gpus in (("cheapest on time", scaling.efficient_gpus), ("diminishing returns", scaling.diminishing_gpus)):
        if gpus is not None:
            height = scaling.model.speedup(gpus) / gpus * 100
            lines.append(Line(f"{name}: {gpus} GPUs", [float(gpus), float(gpus)], [0.0, height]))
    return [
        Chart(
            title=f"Utilization of {advice.gpu} clusters",
            x_label="GPUs",
            y_label="utilization, % of perfect scaling",
            lines=lines,
            note="; ".join(advice.assumptions),
        )
    ]


def radar(advice: HardwareAdvice) -> Chart:
    """The best scores as polygons; more would hide each other."""
    axes = ("cost", "performance", "energy_efficiency", "maturity")
    labels = [axis.replace("_", " ") for axis in axes]
    return Chart(
        title="Hardware compared",
        x_label="",
        y_label="share of the best from the middle (0) to the tip (1); dotted: one half, and 1",
        bars=[Bars(row.accelerator, labels, [getattr(row, axis) for axis in axes]) for row in advice.radar[:4]],
        note=f"cost is performance per dollar of {advice.per}; the best scores of those compared",
        radar=True,
    )
