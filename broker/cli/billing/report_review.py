"""`gpubroker report review`: a month compared with the month before."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.options import MONTH_HELP, AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

EXAMPLES = examples(
    "gpubroker report review --month 2026-11",
    "gpubroker report review --month 2026-11 --out november.html",
    "gpubroker report review --month 2026-11 --out november.md --force",
    "gpubroker report review --month 2026-11 --json",
)


def review(
    context: typer.Context,
    month: Annotated[str, typer.Option("--month", metavar="MONTH", help=MONTH_HELP)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it to an .html or .md file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Review a month: what changed since the month before and why, what to do, and the effect of last month's advice.

    The change is split into volume, mix, price, waste, new use and ended use; these parts add up to it exactly. Without
    --out, the review is printed as Markdown. A month that is not over is compared with the same days of the month
    before.
    """
    from broker.app.billing.review import review as reviewed
    from broker.app.results.review import ReviewReport
    from broker.cli.billing.report_review_view import blocks
    from broker.cli.render.written import html, markdown

    terminal = Terminal.of(context)
    writers = {".html": html, ".md": markdown}
    if out is not None and out.suffix.lower() not in writers:
        raise InvalidInput(f"expected a file that ends in .html or .md, found {out.name}", where="--out")
    if out is not None and out.exists() and not force:
        raise InvalidInput("the file exists", where=str(out), hint="choose another name, or add --force")
    found = ReviewReport.of(reviewed(terminal.broker(), month))
    if out is not None:
        from broker.app.billing.focus_files import drafted

        with drafted(out) as draft:
            draft.write_text(writers[out.suffix.lower()](blocks(found)), encoding="utf-8")
        terminal.say(f"the review of {found.month} is in {out}")
    if as_json:
        terminal.answer(found)
    elif out is None:
        from rich.markdown import Markdown

        text = markdown(blocks(found))
        terminal.show(Markdown(text) if terminal.out.is_terminal else text.rstrip("\n"))
