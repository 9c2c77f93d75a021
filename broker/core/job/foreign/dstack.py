"""Tasks of dstack. Read: the reference of `.dstack.yml` of dstack 0.19."""

import re
from collections.abc import Mapping
from math import inf
from typing import Any

from broker.core.documents import read_document
from broker.core.errors import InvalidInput
from broker.core.job.file.reading import name_from_file
from broker.core.job.foreign.conversion import Conversion, accelerator_name, job_name
from broker.core.market.accelerators import lookup

_SAME = {"max_duration": "max_duration", "nodes": "num_nodes"}
_WITHOUT_EFFECT = frozenset(
    {"type", "name", "reservation", "idle_duration", "creation_policy", "utilization_policy", "tags"}
)
_SPOT = {"spot": ["spot"], "on-demand": ["on_demand"], "auto": ["on_demand", "spot"]}
_MEMORY = re.compile(r"\d+(?:\.\d+)?\s*[GMT]B(?:\.\.(?:\d+\s*[GMT]B)?)?", re.IGNORECASE)
_VENDORS = frozenset({"nvidia", "amd", "intel", "tenstorrent"})
_VARIABLES = {"DSTACK_NODE_RANK": "SKYPILOT_NODE_RANK", "DSTACK_NODES_NUM": "SKYPILOT_NUM_NODES",
              "DSTACK_NODES_IPS": "SKYPILOT_NODE_IPS", "DSTACK_GPUS_PER_NODE": "SKYPILOT_NUM_GPUS_PER_NODE",
              "DSTACK_RUN_NAME": "GPUBROKER_JOB_ID"}  # fmt: skip
# Variables that the script sets itself, from those that a job has.
_COMPUTED = {
    "DSTACK_MASTER_NODE_IP": '$(echo "$SKYPILOT_NODE_IPS" | head -n1)',
    "DSTACK_GPUS_NUM": "$((SKYPILOT_NUM_GPUS_PER_NODE * SKYPILOT_NUM_NODES))",
}


def convert(text: str, file: str) -> Conversion:
    """The job file of a task. Raises `InvalidInput` for a configuration with neither commands nor an image's own, and
    for a session."""
    data, conversion = dict(read_document(text, file=file, kind="configuration").data), Conversion()
    kind = str(data.get("type"))
    if kind != "task":
        instead = "`max_duration:` says for how long" if kind == "service" else "sessions: `gpubroker dev`"
        conversion.lose(f"type: {kind}; it becomes a job ({instead})")
    conversion.job |= {"name": job_name(data.get("name") or name_from_file(file)), "workdir": "."}
    image = data.pop("image", None)
    if image:
        conversion.resource("image_id", f"docker:{image}")
    _resources(data.pop("resources", None) or {}, conversion)
    _environment(data.pop("env", None) or [], conversion)
    for key, name in _SAME.items():
        if (value := data.pop(key, None)) not in (None, "off", 1):
            conversion.job[name] = value
    if (policy := data.pop("spot_policy", None)) in _SPOT:
        conversion.resource("capacity_types", _SPOT[policy])
    places = {"providers": data.pop("backends", None), "regions": data.pop("regions", None)}
    if constraints := {key: [str(name) for name in names] for key, names in places.items() if names}:
        conversion.job["constraints"] = constraints
    if (types := data.pop("instance_types", None)) and len(types) == 1:
        conversion.resource("instance_type", str(types[0]))
    if (retry := data.pop("retry", None)) not in (None, False):
        conversion.lose(
            f"retry: {retry}; interrupted jobs are always placed again, those that fail by `retry: {{failures: N}}`"
        )
    if (price := data.pop("max_price", None)) is not None:
        conversion.lose(
            f"max_price: {price} an hour; `max_cost:` limits the whole job, a policy the price of a GPU-hour"
        )
    commands = _commands(data, kind, bool(image), conversion, file)
    if ports := data.pop("ports", None):
        instead = "`ports:` under `resources:` opens them"
        conversion.lose(f"ports: {ports}, which dstack forwards to your machine; {instead}")
    folder = data.pop("working_dir", None)
    conversion.lose(*(f"{key}: {_short(value)}" for key, value in data.items() if key not in _WITHOUT_EFFECT))
    script = _without_values("\n".join([*([f"cd {folder}"] if folder else []), *commands]) + "\n", conversion)
    exports = [f"export {name}={value}\n" for name, value in _COMPUTED.items() if re.search(rf"\b{name}\b", script)]
    names = _VARIABLES | {name: name for name in _COMPUTED}
    conversion.job["run"] = "".join(["set -e\n", *exports, conversion.rename_variables(script, "DSTACK", names)])
    return conversion


def _commands(data: dict[str, Any], kind: str, has_image: bool, conversion: Conversion, file: str) -> list[str]:
    """The commands, taken from the configuration."""
    if commands := data.pop("commands", None) or data.pop("init", None):
        return [str(command).strip("\n") for command in commands]
    if kind == "dev-environment":
        hint = "open one with `gpubroker dev --gpu GPU`; with commands under `init:` it becomes a job"
        raise InvalidInput("a dev-environment without commands is a session, not a job", where=file, hint=hint)
    if not has_image:
        raise InvalidInput("the configuration has no `commands:`", where=file)
    return [conversion.command_of_the_image()]


def _without_values(script: str, conversion: Conversion) -> str:
    """The script without ``${{ run.args }}`` and its like, which dstack fills in."""
    pattern = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
    conversion.lose(*(f"${{{{ {name} }}}} in the commands: it is left out" for name in pattern.findall(script)))
    return pattern.sub("", script)


def _short(value: object) -> str:
    return " ".join(str(value).split())[:60]


def _resources(resources: Mapping[str, Any], conversion: Conversion) -> None:
    for key, value in resources.items():
        match key:
            case "gpu":
                _gpu(value, conversion)
            case "cpu":
                amount = value.get("count", value) if isinstance(value, Mapping) else value
                conversion.resource("cpus", int(re.findall(r"\d+", str(amount))[-1 if ".." not in str(amount) else 0]))
            case "memory":
                conversion.resource("memory", _least(value))
            case "disk":
                conversion.resource("disk_size", _least(value.get("size") if isinstance(value, Mapping) else value))
            case "shm_size":
                conversion.lose(f"shm_size: {value}; a job's container shares the machine's memory")
            case _:
                conversion.lose(f"resources.{key}: {_short(value)}")


def _least(value: object) -> str:
    """The least of a range such as ``64GB..``."""
    return str(value).partition("..")[0].replace(" ", "").upper()


def _largest(sizes: str) -> float:
    """The most of a range, in GB."""
    number = re.match(r"[\d.]*\d", sizes.rpartition("..")[2].strip())
    return float(number[0]) * (1000 if sizes.upper().endswith("TB") else 1) if number else inf


def _gpu(value: object, conversion: Conversion) -> None:
    """Convert ``gpu:``. Without name and vendor, any card of NVIDIA is meant: dstack's own image is made for these."""
    names, vendor, sizes, amount = _gpu_fields(value)
    names = [conversion.whole_model(name, f"gpu: {_short(value)}") for name in names]
    if vendor == "tenstorrent":
        names = names or [vendor]
    if vendor != "nvidia" and not names and not sizes:
        sizes = "16GB.."
        conversion.lose(f"gpu: {_short(value)} names no model; any of 16 GB or more is accepted")
    memory = _least(sizes)
    if not (count := conversion.whole_cards(amount, f"gpu: {_short(value)}")):
        return
    known = [name for name in (accelerator_name(f"{gpu}-{memory}" if memory else gpu) for gpu in names) if name]
    for name in known:
        if (size := lookup(name).memory_gb) > 1.1 * _largest(sizes):
            conversion.lose(f"gpu memory {sizes}: a card {name} has {size:g} GB, and only whole cards are rented")
    if known:
        several = len(set(known)) > 1  # in no order, as in dstack
        conversion.resource("accelerators", dict.fromkeys(known, count) if several else f"{known[0]}:{count}")
    elif memory and not names:
        conversion.resource("accelerators", f"{vendor}:{memory}{'+' if '..' in sizes else ''}:{count}")
        if not sizes.endswith("..") and ".." in sizes:
            conversion.lose(f"gpu memory {sizes}: larger cards are accepted, too")
    else:
        conversion.gpus(count, ", ".join(names) or None, f"gpu: {_short(value)}", vendor)


def _gpu_fields(value: object) -> tuple[list[str], str, str, float]:
    """Names, vendor, memory and number of ``H100:8``, ``80GB``, ``A100:80GB:4``, ``amd:24GB..``, a number, or a mapping
    of these."""
    names: list[str] = []
    vendor, sizes, amount = "nvidia", "", 1.0
    parts = [str(value)]
    if isinstance(value, Mapping):
        name = value.get("name")
        names = [str(entry) for entry in (name if isinstance(name, list) else [name])] if name else []
        sizes = str(value.get("memory") or "")
        parts = [str(value.get("count") or 1), *([str(value["vendor"])] if value.get("vendor") else [])]
    for part in (piece.strip() for text in parts for piece in text.split(":")):
        if _MEMORY.fullmatch(part):
            sizes = part
        elif re.fullmatch(r"[\d.]*\d(?:\.\.[\d.]*)?", part):
            amount = float(part.partition("..")[0])
        elif part.lower() in _VENDORS:
            vendor = part.lower()
        else:
            names += [item.strip() for item in part.split(",")]
    return names, vendor, sizes, amount


def _environment(variables: object, conversion: Conversion) -> None:
    if isinstance(variables, Mapping):
        for name, value in variables.items():
            conversion.variable(str(name), None if value is None else str(value))
        return
    for text in variables if isinstance(variables, list) else []:
        name, equals, value = str(text).partition("=")
        secret = re.fullmatch(r"\$\{\{\s*secrets\.\w+\s*\}\}", value)
        conversion.variable(name, value if equals and not secret else None)
