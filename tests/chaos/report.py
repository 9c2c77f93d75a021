"""The figures of a chaos run as a table."""

from rich.console import Console
from rich.table import Table

from tests.chaos.verdict import ChaosVerdict


def table(verdict: ChaosVerdict) -> None:
    """On stdout."""
    console, figures = Console(), verdict.figures
    strikes = Table("fault", "struck", title="faults")
    for kind, times in figures["strikes"].items():
        strikes.add_row(kind.replace("_", " "), f"{times:,}")
    console.print(strikes)
    found = Table("what", "figure", title="what became of it")
    for what, value in figures.items():
        if what == "strikes" or not value:
            continue
        shown = ", ".join(f"{n} {name}" for name, n in value.items()) if isinstance(value, dict) else value
        shown = "; ".join(shown) if isinstance(shown, list) else str(shown)
        found.add_row(what.replace("_", " "), shown)
    console.print(found)
    for wrong in verdict.wrong:
        console.print(f"WRONG {wrong}", markup=False)
    console.print("all is right" if not verdict.wrong else f"{len(verdict.wrong)} things are wrong")
