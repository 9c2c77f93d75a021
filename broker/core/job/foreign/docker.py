"""Lines with `docker run`. Read: the reference of `docker run` of Docker 27."""

import re
import shlex

from broker.core.errors import InvalidInput
from broker.core.job.file.reading import name_from_file
from broker.core.job.foreign.conversion import Conversion, gibibytes, job_name, shell_command

_SHORT = {"e": "env", "v": "volume", "w": "workdir", "m": "memory", "p": "publish", "u": "user", "h": "hostname"}
_ATTACHED = {"rm", "interactive", "tty", "detach", "init", "i", "t", "d", "it", "ti", "dit", "itd", "quiet", "q"}
_FLAGS = _ATTACHED | {"privileged", "read-only", "no-healthcheck", "P", "publish-all", "sig-proxy", "oom-kill-disable"}
_UNNEEDED = {"ipc", "restart", "pull", "shm-size", "ulimit", "runtime", "hostname", "memory-swap"} | _ATTACHED
_SIZES = {"b": 2**-30, "k": 2**-20, "m": 2**-10, "g": 1.0, "t": 1024.0}
_HERE = re.compile(r"(?:\$\{?PWD\}?|\.)/?")


def convert(text: str, file: str) -> Conversion:
    """The job file of the first `docker run` in a text. Raises `InvalidInput` for one without an image."""
    joined = re.sub(r"\\\s*\n", " ", text)
    match = re.search(r"(?:docker|podman|nvidia-docker)\s+(?:container\s+)?run\s+(.*)", joined)
    try:
        words = shlex.split(
            (match[1] if match else "").replace("$(pwd)", "$PWD").replace("`pwd`", "$PWD"), comments=True
        )
    except ValueError as error:
        raise InvalidInput(str(error).lower(), where=file) from error
    conversion = Conversion()
    conversion.job |= {"name": name_from_file(file), "workdir": "."}
    options = _options(words)
    if not words:
        raise InvalidInput("the `docker run` names no image", where=file)
    image, *command = words
    conversion.resource("image_id", f"docker:{image}")
    folder, mounted = "", {"."}
    for name, value in options:
        match name:
            case "workdir":
                folder = value
            case "entrypoint":
                command = [value, *command]
            case "volume" | "mount":
                mounted |= _mount(*_source_and_target(name, value), conversion)
            case _:
                _carry(name, value, conversion)
    if not command:
        command = ["sh", "-c", conversion.command_of_the_image()]
    begin = f"cd {folder}\n" if folder and folder.rstrip("/") not in mounted else ""
    conversion.job["run"] = begin + shell_command(command).strip("\n") + "\n"
    return conversion


def _options(words: list[str]) -> list[tuple[str, str]]:
    """Takes the options from the words, up to the image."""
    options = []
    while words and words[0].startswith("-"):
        word = words.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("--") and name not in _FLAGS:
            name, value, equals = _SHORT.get(name[0], name[0]), name[1:] + equals + value, equals or name[1:]
        if not equals and name not in _FLAGS and words:
            value = words.pop(0)
        options.append((name, value))
    return options


def _carry(name: str, value: str, conversion: Conversion) -> None:
    match name:
        case "env" if value.startswith("NVIDIA_VISIBLE_DEVICES="):
            if (visible := value.partition("=")[2]) not in ("", "none", "void"):
                _carry("gpus", visible if visible == "all" else f"device={visible}", conversion)
        case "gpus":
            count = re.search(r"\d+", value)
            devices = re.search(r"device=([\w,:/-]+)", value)
            number = len(devices[1].split(",")) if devices else int(count[0]) if count else 1
            if devices and re.search(r"MIG-|\d:\d", devices[1]):
                conversion.lose_share(f"--gpus {value}")
            conversion.gpus(number, None, f"--gpus {value}")
        case "env":
            variable, equals, text = value.partition("=")
            conversion.variable(variable, text if equals and not text.startswith("$") else None)
        case "name":
            conversion.job["name"] = job_name(value)
        case "cpus":
            conversion.resource("cpus", float(value) if "." in value else int(value))
        case "memory":
            unit = value[-1].lower() if value[-1:].isalpha() else "b"
            conversion.resource("memory", gibibytes(float(value.rstrip("bBkKmMgGtT")) * _SIZES[unit]))
        case "publish":
            conversion.resource(
                "ports",
                [*conversion.job.get("resources", {}).get("ports", []), int(value.split(":")[-1].split("/")[0])],
            )
        case _ if name not in _UNNEEDED:
            conversion.lose(f"--{name} {value}".rstrip())


def _source_and_target(name: str, value: str) -> tuple[str, str]:
    if name == "mount":
        fields = dict(part.partition("=")[::2] for part in value.split(","))
        return fields.get("source", fields.get("src", "")), fields.get("target", fields.get("dst", ""))
    source, _, target = value.partition(":")
    return source, target.partition(":")[0]


def _mount(source: str, target: str, conversion: Conversion) -> set[str]:
    """Carry a mount over; the folder of the container that becomes the working folder, if it is that of the command."""
    if _HERE.fullmatch(source):
        conversion.lose(f"{target}: the job's files are in its working folder, in which `run:` begins")
        return {target.rstrip("/")}
    relative = re.sub(r"^\$\{?PWD\}?/", "./", source)
    if target and re.match(r"[./~]", relative):
        conversion.job.setdefault("file_mounts", {})[target] = relative
        conversion.lose(
            f"{source} is copied to {target} at submission; for large data name a bucket under `file_mounts:`"
        )
    else:
        conversion.lose(f"the volume {source or target}")
    return set()
