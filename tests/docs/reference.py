"""The reference pages of the site, made from the code: ``python -m tests.docs.reference FOLDER``.

What is written here is not kept: `make docs` writes it before it builds the site.
"""

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from inspect import cleandoc, getdoc
from pathlib import Path
from typing import Any, get_args, get_origin

import typer.main
from pydantic import BaseModel

from broker.app.service import metrics
from broker.app.use_cases.catalogue import JOB_FILE, schema_of
from broker.cli.program import app
from broker.core.job import jobs
from broker.engines.registry import ENGINES
from broker.server.api.routes import ROUTES
from broker.settings import Settings
from policies import cases
from policies.schema import json_schema
from providers.registry import PROVIDERS


def cell(text: str) -> str:
    """Text within a table: one line, nothing that ends the cell or begins HTML."""
    return re.sub(r"\s+", " ", text).replace("``", "`").replace("|", "\\|").replace("<", "&lt;").strip()


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = (head, ("---",) * len(head), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def commands() -> Iterator[str]:
    """Every command with its help and its options."""
    yield "# Commands\nWhat `gpubroker COMMAND --help` prints. `--json` prints one document.\n"

    def visit(command: Any, name: str) -> Iterator[str]:
        if command.hidden:
            return
        text = re.sub(r"\[/?[a-z ]+\]", "", cleandoc(command.help or ""))
        yield f"## {name}\n{text.replace('<', '&lt;')}\n" if name != "gpubroker" else ""
        if hasattr(command, "commands"):
            for child in command.list_commands(None):
                yield from visit(command.get_command(None, child), f"{name} {child}")
            return
        shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
        arguments = [one.metavar or (one.name or "").upper() for one in shown if not one.opts[0].startswith("-")]
        yield f"    {name} {' '.join([*arguments, '[OPTIONS]'])}\n"
        rows = [
            (f"`{', '.join(one.opts + one.secondary_opts)}`", cell(one.help or ""))
            for one in shown
            if one.opts[0].startswith("-")
        ]
        yield table(("option", "what it does"), rows) if rows else ""

    yield from visit(typer.main.get_command(app), "gpubroker")


def kind_of(schema: Mapping[str, Any]) -> str:
    """What a value of the schema may be, in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(kind_of(choice) for choice in choices if choice.get("type") != "null"))
    if schema.get("type") == "array":
        return f"list of {kind_of(schema.get('items', {}))}"
    examples = ", ".join(f"`{example}`" for example in schema.get("examples", ()))
    kinds = schema.get("type") or "any value"
    return (kinds if isinstance(kinds, str) else " or ".join(kinds)) + (f": {examples}" if examples else "")


JOB_PARTS = {
    "CheckpointPlan": jobs.CheckpointPlan,
    "Constraints": jobs.Constraints,
    "Data": jobs.Data,
    "MachineSection": jobs.MachineRequest,
    "ModelSection": jobs.Model,
    "Retry": jobs.Retry,
    "SessionPlan": jobs.SessionPlan,
}
"""What describes the keys of a part of a job file."""


def meanings(text: str) -> dict[str, str]:
    """What a docstring says of each name."""
    return {
        name: meaning.partition(". `")[0] for names, meaning in described(text) for name in re.findall(r"\w+", names)
    }


def document(title: str, intro: str, schema: Mapping[str, Any], models: Mapping[str, type]) -> Iterator[str]:
    """A kind of file by its JSON Schema: a section for each of its parts, described by its model."""
    yield f"# {title}\n{intro}\n"
    for part, body in {"The file": schema, **schema["$defs"]}.items():
        text = getdoc(models[part]) or "" if part in models else ""
        yield f"## {part}\n{cell(body.get('description') or summary(text))}\n"
        if "properties" not in body:
            yield f"{cell(kind_of(body))}\n"
            continue
        needed = body.get("required", ())
        told = meanings(text)
        rows = []
        for key, value in body["properties"].items():
            default = value.get("default")
            rows.append(
                (
                    f"`{key}`" + (" (needed)" if key in needed else ""),
                    cell(kind_of(value)),
                    "" if default in (None, [], {}) else f"`{cell(str(default))}`",
                    cell(value.get("description") or told.get(key, "")),
                )
            )
        yield table(("key", "value", "default", "meaning"), rows)


def summary(text: str) -> str:
    """What a docstring says before it describes names."""
    return re.split(r"(?:``\w+``(?:, | and )?)+: ", text)[0]


def described(text: str) -> Iterator[tuple[str, str]]:
    """The settings that a docstring describes, each as ``name``: text."""
    for names, meaning in re.findall(
        r"((?:``\w+``(?:, | and )?)+): (.*?)(?=\s+(?:``\w+``(?:, | and )?)+: |\Z)", text, re.S
    ):
        yield cell(names), cell(meaning)


def settings_page() -> Iterator[str]:
    """Settings with what their models say of them."""
    yield (
        "# Settings\nRead from `gpubroker.toml` in the user's configuration folder, then in the working one, then from"
        " `GPUBROKER_*` variables; of the same setting, the last one wins. `__` nests: `GPUBROKER_SERVE__LISTEN` is"
        " `listen` under `[serve]`.\n"
    )
    sections: list[tuple[str, Any]] = [("Top level", Settings)]
    for key, field in Settings.model_fields.items():
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                sections.append((f"[{key}.NAME]" if get_origin(field.annotation) is dict else f"[{key}]", part))
    for title, registry in (("engines", ENGINES), ("providers", PROVIDERS)):
        for name, place in sorted(registry.items()):
            module, _, member = place.partition(":")
            plugin = getattr(import_module(module), member)
            if model := getattr(plugin, "Settings", None):
                sections.append((f"[{title}.{name}]", model))
    for title, model in sections:
        text = getdoc(model) or ""
        rows = list(described(text))
        yield f"## {title}\n{cell(summary(text))}\n"
        yield table(("setting", "meaning"), rows) if rows else ""


def metrics_page() -> Iterator[str]:
    """Each metric as the service names it."""
    yield "# Metrics\n`gpubroker serve` answers `/metrics` in Prometheus' text format, for the token under `[serve]`.\n"
    rows: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(Path(metrics.__file__).read_text("utf-8"))):
        arguments = node.args[:2] if isinstance(node, ast.Call) else []
        parts = [argument.value for argument in arguments if isinstance(argument, ast.Constant)]
        match parts:
            case [str(name), str(meaning)] if name.startswith("gpubroker_"):
                rows.append((f"`{name}`", cell(meaning)))
    yield table(("metric", "meaning"), sorted(dict(rows).items()))


def api_page() -> Iterator[str]:
    """Each route with the permission that it needs."""
    yield (
        "# HTTP API\nAt `/api/v1` of a server; `/api/v1/openapi.json` describes parameters and documents (OpenAPI 3.1)."
        " Every request carries `Authorization: Bearer TOKEN`; one that changes something also an `Idempotency-Key`.\n"
    )
    rows = []
    for route in ROUTES:
        meaning = (getdoc(route.endpoint) or "").partition("\n\n")[0]
        permission = route.permission.value if route.permission else "any token"
        rows.append((f"`{route.method} {route.path}`", cell(permission), cell(meaning)))
    yield table(("request", "permission", "what it does"), rows)


PAGES = {
    "commands": commands,
    "job-file": lambda: document(
        "Job file",
        "How to use the keys: [job files](../job-files.md). `gpubroker schema job-file` prints the JSON Schema.",
        schema_of(JOB_FILE),
        {**JOB_PARTS, "The file": jobs.Job},
    ),
    "policy-file": lambda: document(
        "Policy file",
        "What the rules mean: [policies](../policies.md). `gpubroker schema policy-file` prints the JSON Schema.",
        json_schema(),
        {},
    ),
    "policy-cases": lambda: document(
        "Policy test cases",
        "How to write and run them: [policies](../policies.md#test-cases).",
        cases.CaseFile.model_json_schema(),
        {name: getattr(cases, name) for name in ("PolicyCase", "OfferCase", "RunningCase", "InHandCase", "BusyCase")},
    ),
    "settings": settings_page,
    "metrics": metrics_page,
    "api": api_page,
}


def write(folder: Path) -> None:
    """All pages into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / f"{name}.md").write_text("\n".join(page()), "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
