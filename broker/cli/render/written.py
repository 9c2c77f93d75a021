"""A document from blocks, as Markdown or as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1d2733}"
    "table{border-collapse:collapse;width:100%;margin:1rem 0}th,td{padding:.3rem .6rem;border-bottom:1px solid #d5dbe1;"
    "text-align:left}.figure{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    "@media(prefers-color-scheme:dark){body{background:#12181f;color:#dfe6ee}th,td{border-color:#33404d}}"
)
_MARKUP = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]<>|#"} | {"\n": " "})


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; ``level`` 1 is the document's."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of plain texts."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; the columns from the ``figures``-th on are aligned as figures."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    figures: int = 1


Block = Heading | Paragraph | Bullets | Grid


def markdown(blocks: Sequence[Block]) -> str:
    """The document as Markdown with tables (CommonMark and GitHub's tables). All texts are escaped."""
    return "\n\n".join(map(_markdown, blocks)) + "\n"


def html(blocks: Sequence[Block]) -> str:
    """The document as an HTML page without network access. All texts are escaped."""
    title = next((one.text for one in blocks if isinstance(one, Heading)), "")
    body = "\n".join(map(_html, blocks))
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{_STYLE}</style>\n{body}\n</html>\n'
    )


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text.translate(_MARKUP)}"
        case Paragraph(text):
            return text.translate(_MARKUP)
        case Bullets(items):
            return "\n".join(f"- {item.translate(_MARKUP)}" for item in items)
        case Grid(header, rows, figures):
            marks = ["---" if place < figures else "--:" for place in range(len(header))]
            lines = [header, marks, *([cell.translate(_MARKUP) for cell in row] for row in rows)]
            return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"
        case Grid(header, rows, figures):
            head = "".join(_cell("th", cell, place >= figures) for place, cell in enumerate(header))
            body = "".join(
                "<tr>" + "".join(_cell("td", cell, place >= figures) for place, cell in enumerate(row)) + "</tr>"
                for row in rows
            )
            return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(tag: str, text: str, figure: bool) -> str:
    of = ' class="figure"' if figure else ""
    return f"<{tag}{of}>{escape(text)}</{tag}>"
