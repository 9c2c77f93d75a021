"""How large the product is: ``make size``, or ``python -m tests.size --json``.

Counts what git tracks: lines of Python in ``broker``, ``providers``, ``policies`` and ``cli.py``, and in ``tests``;
modules and who imports them; commands and options; words of documentation.
"""

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import typer.main

from broker.cli.program import app

ROOT = Path(__file__).parent.parent
PRODUCT = ("broker", "providers", "policies", "cli.py")
SMALL = 100  # lines below which a module with a single importer wants a reason
MOST_OPTIONS = 14
MORE_OPTIONS = {"submit": 20, "plan": 20, "dev": 20}  # a plan takes the options of the submission that follows


def tracked(*places: str, suffix: str) -> list[Path]:
    """The files that git tracks below these places."""
    listed = subprocess.run(["git", "ls-files", "-z", *places], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name.endswith(suffix) and (ROOT / name).exists()]


def lines_of(files: list[Path]) -> list[int]:
    return [len(file.read_bytes().splitlines()) for file in files]


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def importers(files: list[Path]) -> Counter[str]:
    """How many modules of the product import each module, by its dotted name."""
    known = {module_name(file) for file in files}
    found: Counter[str] = Counter()
    for file in files:
        imported: set[str] = set()
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        found.update((imported & known) - {module_name(file)})
    return found


def command_options() -> dict[str, list[str]]:
    """The options of each leaf command by its full name, in the longest form of each, without ``--help``."""
    options: dict[str, list[str]] = {}

    def visit(command: Any, name: str) -> None:
        if hasattr(command, "commands"):
            for child in command.list_commands(None):
                visit(command.get_command(None, child), f"{name} {child}".strip())
            return
        options[name] = [
            max(parameter.opts, key=len)
            for parameter in command.params
            if parameter.param_type_name == "option" and not parameter.hidden and "--help" not in parameter.opts
        ]

    visit(typer.main.get_command(app), "")
    return options


def too_many_options(options: dict[str, list[str]]) -> dict[str, int]:
    """The commands with more options than a person can survey, and how many they have."""
    return {name: len(found) for name, found in options.items() if len(found) > MORE_OPTIONS.get(name, MOST_OPTIONS)}


def words_of_documentation() -> int:
    return sum(len(file.read_text("utf-8").split()) for file in tracked(suffix=".md") if file.name != "LICENSE")


def measure() -> dict[str, Any]:
    """Every figure of the table."""
    files, tests = tracked(*PRODUCT, suffix=".py"), tracked("tests", suffix=".py")
    product, options, known = lines_of(files), command_options(), importers(files)
    length = {module_name(file): count for file, count in zip(files, product, strict=True)}
    return {
        "product_lines": sum(product),
        "modules": sum(count > 1 for count in product),
        "median_module": int(median(count for count in product if count > 1)),
        "small_modules_with_one_importer": sum(
            known[name] == 1 and count < SMALL for name, count in length.items() if count > 1
        ),
        "test_lines": sum(lines_of(tests)),
        "lines_by_package": package_lines(files, product),
        "commands": len(options),
        "distinct_options": len({option for found in options.values() for option in found}),
        "most_options": max((len(found), name) for name, found in options.items()),
        "too_many_options": too_many_options(options),
        "words_of_documentation": words_of_documentation(),
    }


def package_lines(files: list[Path], counts: list[int]) -> dict[str, int]:
    """Lines of each package, the largest first: ``broker/store``, ``providers``."""
    by_package: Counter[str] = Counter()
    for file, count in zip(files, counts, strict=True):
        parts = file.relative_to(ROOT).parts
        by_package["/".join(parts[:2]) if parts[0] == "broker" and len(parts) > 2 else parts[0]] += count
    return dict(by_package.most_common())


def main(arguments: list[str]) -> None:
    found = measure()
    if "--json" in arguments:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        if name == "lines_by_package":
            print("lines by package".ljust(34) + ", ".join(f"{key} {count:,}" for key, count in value.items()))
        else:
            shown = f"{value:,}" if isinstance(value, int) else value or "none"
            print(f"{name.replace('_', ' '):34}{shown}")


if __name__ == "__main__":
    main(sys.argv[1:])
