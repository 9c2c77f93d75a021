"""A document from blocks, as Markdown or as a self-contained HTML page."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_CSS = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1d2733}"
    "table{border-collapse:collapse;width:100%;margin:1rem 0}th,td{padding:.3rem .6rem;border-bottom:1px solid #d5dbe1;"
    "text-align:left}.figure{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    "@media(prefers-color-scheme:dark){body{background:#12181f;color:#dfe6ee}th,td{border-color:#33404d}}"
)
_MARKDOWN_ESCAPES = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]<>|#"} | {"\n": " "})


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
    return "\n\n".join(map(_block_markdown, blocks)) + "\n"


def html(blocks: Sequence[Block]) -> str:
    """The document as an HTML page without network access. All texts are escaped."""
    title = next((block.text for block in blocks if isinstance(block, Heading)), "")
    body = "\n".join(map(_block_html, blocks))
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{_CSS}</style>\n{body}\n</html>\n'
    )


def _block_markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text.translate(_MARKDOWN_ESCAPES)}"
        case Paragraph(text):
            return text.translate(_MARKDOWN_ESCAPES)
        case Bullets(items):
            return "\n".join(f"- {item.translate(_MARKDOWN_ESCAPES)}" for item in items)
        case Grid(header, rows, figures):
            alignment_marks = ["---" if index < figures else "--:" for index in range(len(header))]
            lines = [header, alignment_marks, *([cell.translate(_MARKDOWN_ESCAPES) for cell in row] for row in rows)]
            return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _block_html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"
        case Grid(header, rows, figures):
            head = "".join(_cell_html("th", cell, index >= figures) for index, cell in enumerate(header))
            body = "".join(
                "<tr>" + "".join(_cell_html("td", cell, index >= figures) for index, cell in enumerate(row)) + "</tr>"
                for row in rows
            )
            return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell_html(tag: str, text: str, figure: bool) -> str:
    class_attribute = ' class="figure"' if figure else ""
    return f"<{tag}{class_attribute}>{escape(text)}</{tag}>"
