"""Charts as one HTML page without network access, each with drawing, description and table, in light and dark mode."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape

from broker.cli.render.charts.chart import Chart, describe, number, places
from broker.cli.render.charts.picture import drawing

# Placeholder for the page's text colour, because matplotlib needs a definite colour.
_INK = "#010203"
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1e; --paper: #ffffff; --faint: #6b6b70; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececee; --paper: #16161a; --faint: #a0a0a8; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif;
  color: var(--ink); background: var(--paper); }
figure { margin: 0 0 3rem; } svg { width: 100%; height: auto; } svg text { font-family: system-ui, sans-serif; }
h1 { font-size: 1.3rem; } summary, figcaption { color: var(--faint); } summary { cursor: pointer; }
.wide { overflow: auto; max-height: 30rem; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .8rem .15rem 0; text-align: right; white-space: nowrap; } th:first-child, td:first-child
{ text-align: left; } thead th { position: sticky; top: 0; background: var(--paper); }
"""


def page(charts: Sequence[Chart], mark: str) -> str:
    """The page. ``mark``: the text of the generator tag in its head."""
    title = escape(charts[0].title if charts else "No charts")
    figures = "\n".join(_figure(chart, n) for n, chart in enumerate(charts, 1))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="generator" content="{mark}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{figures}\n</body>\n</html>\n"
    )


def _figure(chart: Chart, n: int) -> str:
    title, sentences = escape(chart.title), describe(chart)
    told = escape(" ".join([f"{chart.y_label}.", *sentences]))
    svg = _inline(drawing([dataclasses.replace(chart, note="")], "svg", ink=_INK, paper=None).decode(), n)
    named = f'<svg role="img" aria-labelledby="t{n} d{n}" '
    svg = svg.replace("<svg ", named, 1)
    svg = re.sub(r"(<svg[^>]*>)", rf'\1<title id="t{n}">{_literal(title)}</title>', svg, count=1)
    svg = svg.replace("</title>", f'</title><desc id="d{n}">{told}</desc>', 1)
    note = f"<figcaption>{escape(chart.note)}</figcaption>\n" if chart.note else ""
    return f"<figure>\n{svg}\n{note}<details><summary>The figures</summary>\n{_table(chart)}\n</details>\n</figure>"


def _inline(svg: str, n: int) -> str:
    """The drawing for embedding in a page: without head and metadata, in the page's colours, with unique IDs."""
    svg = svg[svg.index("<svg ") :].strip()
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sid="([^"]+)"', rf' id="c{n}-\1"', svg)
    svg = re.sub(r'(xlink:href="|url\()#', rf"\1#c{n}-", svg)
    return svg.replace(_INK, "currentColor")


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\")


def _table(chart: Chart) -> str:
    heads, rows = (_of_bars if chart.bars else _of_lines)(chart)
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "\n".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for first, *cells in rows
    )
    caption = f"<caption>{escape(chart.y_label)}</caption>" if chart.y_label else ""
    return f'<div class="wide"><table>{caption}<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def _of_bars(chart: Chart) -> tuple[list[str], Iterator[list[str]]]:
    heads = [chart.x_label, *(bars.name for bars in chart.bars)]
    labels = chart.bars[0].labels
    return heads, ([label, *(_cell(bars.values[n]) for bars in chart.bars)] for n, label in enumerate(labels))


def _of_lines(chart: Chart) -> tuple[list[str], Iterator[list[str]]]:
    """One row for each x value at which a line has a point."""
    values = [dict(zip(places(line), line.y, strict=True)) for line in chart.lines]
    found = sorted({x for line in values for x in line})
    heads = [f"{chart.x_label} (UTC)" if chart.over_time else chart.x_label, *(line.name for line in chart.lines)]

    def place(x: float) -> str:
        return f"{datetime.fromtimestamp(x, UTC):%Y-%m-%d %H:%M}" if chart.over_time else number(x)

    return heads, ([place(x), *(_cell(line[x]) if x in line else "" for line in values)] for x in found)


def _cell(value: float | None) -> str:
    return "–" if value is None or value != value else number(value)
