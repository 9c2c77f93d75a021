"""Batch scripts of Slurm. Read: sbatch(1), srun(1) of Slurm 24.05."""

import re
import shlex
from collections.abc import Iterator
from datetime import timedelta

from broker.core.errors import InvalidInput
from broker.core.job.arrays import MAX_LISTED
from broker.core.job.file.reading import name_from_file
from broker.core.job.foreign.conversion import Conversion, gibibytes, job_name
from broker.core.values.units import print_duration

_SHORT = {
    "J": "job-name", "t": "time", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "G": "gpus", "a": "array",
    "o": "output", "e": "error", "p": "partition", "A": "account", "q": "qos", "C": "constraint", "D": "chdir",
    "d": "dependency", "w": "nodelist", "x": "exclude", "b": "begin", "m": "distribution",
}  # fmt: skip
_FLAGS = {"exclusive", "requeue", "no-requeue", "overcommit", "hold", "parsable", "contiguous", "oversubscribe"}
_WITHOUT_EFFECT = frozenset(
    {"partition", "qos", "mail-type", "mail-user", "requeue", "exclusive", "parsable", "open-mode",
     "comment", "distribution", "hint", "nice", "overcommit", "oversubscribe", "no-requeue", "wckey", "cpu-bind",
     "gpu-bind"}
)  # fmt: skip
_UNITS = {"K": 1 / 1024**2, "M": 1 / 1024, "G": 1.0, "T": 1024.0}  # GiB
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_GPU = re.compile(r"(?:gpu:)?(?:(?P<model>\w[\w.-]*)[:=])?(?P<count>\d+)")
_SRUN = re.compile(r"(?P<before>^\s*|[;&|(]\s*|\b(?:exec|time)\s+)srun(?P<rest>(?:\s.*)?)$")
_CONTINUED_SRUN = re.compile(r"^(\s*srun\b.*?)\s*\\\n\s*", re.MULTILINE)
_WITH_VALUE = "JtNncGaopeADwxmiKu"
_ARRAY = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_HOSTS = re.compile(r"scontrol\s+show\s+hostnames?(?:\s+([\"']?)\$\{?SLURM_(?:JOB_)?NODELIST\}?\1)?")
# Variables of Slurm, and those that a job has here.
_VARIABLES = {
    "SLURM_PROCID": "SKYPILOT_NODE_RANK", "SLURM_NODEID": "SKYPILOT_NODE_RANK", "SLURM_NNODES": "SKYPILOT_NUM_NODES",
    "SLURM_JOB_NUM_NODES": "SKYPILOT_NUM_NODES", "SLURM_GPUS_ON_NODE": "SKYPILOT_NUM_GPUS_PER_NODE",
    "SLURM_JOB_ID": "GPUBROKER_JOB_ID", "SLURM_JOBID": "GPUBROKER_JOB_ID", "SLURM_ARRAY_JOB_ID": "GPUBROKER_ARRAY_ID",
    "SLURM_ARRAY_TASK_ID": "SLURM_ARRAY_TASK_ID", "SLURM_CPUS_PER_TASK": "SLURM_CPUS_PER_TASK",
}  # fmt: skip


def convert(text: str, file: str) -> Conversion:
    """The job file of a batch script. Raises `InvalidInput` for a directive that is malformed, or a script without
    commands."""
    options, conversion = dict(_directives(text, file)), Conversion()
    conversion.job["name"] = job_name(options.pop("job-name", None) or name_from_file(file))
    conversion.job["workdir"] = options.pop("chdir", ".")
    if "SLURM_CPUS_PER_TASK" in text:
        conversion.variable("SLURM_CPUS_PER_TASK", str(_first_number(options.get("cpus-per-task"))))
    _convert_machine(options, conversion)
    if (limit := options.pop("time", None)) is not None:
        conversion.job["max_duration"] = print_duration(timedelta(seconds=_seconds(limit, file)))
    if (tasks := options.pop("array", None)) is not None:
        _array(tasks, conversion, file)
    _environment(options.pop("export", None), conversion)
    for name in ("output", "error"):
        if (path := options.pop(name, None)) is not None:
            conversion.lose(f"--{name}={path}: the output is kept; `gpubroker logs JOB` prints it")
    if (account := options.pop("account", None)) is not None:
        conversion.lose(f"--account={account}: if a budget is for a team of that name, write `team: {account}`")
    if (before := options.pop("dependency", None)) is not None:
        conversion.lose(f"--dependency={before}: name the jobs under `after:`")
    others = {name: value for name, value in options.items() if name not in _WITHOUT_EFFECT}
    conversion.lose(*(f"--{name}{f'={value}' if value else ''}" for name, value in others.items()))
    if ignored := [name for name in options if name in _WITHOUT_EFFECT]:
        conversion.lose(f"of the cluster alone: {', '.join(f'--{name}' for name in ignored)}")
    conversion.job["run"] = _commands(text, conversion)
    if not conversion.job["run"].strip():
        raise InvalidInput("the script has no commands", where=file)
    return conversion


def _directives(text: str, file: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped.startswith("#SBATCH"):
            continue
        try:
            words = shlex.split(stripped.removeprefix("#SBATCH"), comments=True)
        except ValueError as error:
            raise InvalidInput(f"line {number}: {str(error).lower()}", where=file) from error
        yield from _options(words)


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    """The options among the words, by their long names, until the first other word."""
    while words and words[0].startswith("-") and words[0] != "--":
        word = words.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if not equals and name not in _FLAGS and words and not words[0].startswith("-"):
                value = words.pop(0)
        else:
            name, value = _SHORT.get(word[1:2], word[1:2]), word[2:].removeprefix("=")
            if not value and word[1:2] in _WITH_VALUE and words:
                value = words.pop(0)
        yield name, value


def _convert_machine(options: dict[str, str], conversion: Conversion) -> None:
    nodes = _first_number(options.get("nodes"))
    if "-" in options.pop("nodes", ""):
        conversion.lose(f"a range of nodes: the job asks for {nodes}")
    if nodes > 1:
        conversion.job["num_nodes"] = nodes
    tasks = _first_number(options.pop("ntasks-per-node", None), max(_first_number(options.get("ntasks")) // nodes, 1))
    options.pop("ntasks", None)
    cpus = _first_number(options.pop("cpus-per-task", None), 0)
    gpus = _gpus(options, conversion, nodes, tasks)
    if per_gpu := _first_number(options.pop("cpus-per-gpu", None), 0):
        conversion.resource("cpus", per_gpu * max(gpus, 1))
    elif cpus or tasks > 1:
        conversion.resource("cpus", max(cpus, 1) * tasks)
    if tasks > 1:
        conversion.lose(
            f"{tasks} tasks on each node: the command runs once there; `torchrun --nproc-per-node {tasks}` starts more"
        )
    for name, times in (("mem", 1), ("mem-per-cpu", max(cpus, 1) * tasks), ("mem-per-gpu", max(gpus, 1))):
        if (memory := _gib(asked := options.pop(name, None))) > 0:
            conversion.resource("memory", gibibytes(memory * times))
        elif asked is not None:
            conversion.lose(f"--{name}={asked}, all memory of a node: write what the job needs, such as `memory: 64+`")


def _gpus(options: dict[str, str], conversion: Conversion, nodes: int, tasks: int) -> int:
    """Request the accelerators of one node; how many."""
    count = 0
    for name, of_node in (("gres", 1.0), ("gpus-per-node", 1.0), ("gpus", 1 / nodes), ("gpus-per-task", float(tasks))):
        value = None if count else options.pop(name, None)
        for part in (value or "").split(","):
            if name == "gres" and not part.startswith("gpu"):
                conversion.lose(*([f"--gres={part}"] if part else []))
                continue
            match = _GPU.fullmatch(re.sub(r"\(.*\)", "", "gpu:1" if part == "gpu" else part))
            if match is not None and int(match["count"]) and not count:
                count = max(round(int(match["count"]) * of_node), 1)
                conversion.gpus(count, match["model"], f"--{name}={value}")
            elif part and (match is None or count):
                conversion.lose(f"--{name}={part}")
    return count


def _first_number(text: str | None, default: int = 1) -> int:
    match = re.match(r"\d+", text or "")
    return max(int(match[0]), 1) if match else default


def _gib(text: str | None) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT])?B?", (text or "").strip(), re.IGNORECASE)
    return float(match[1]) * _UNITS[(match[2] or "M").upper()] if match else 0.0


def _seconds(text: str, file: str) -> int:
    """``MM``, ``MM:SS``, ``HH:MM:SS``, ``D-HH``, ``D-HH:MM`` or ``D-HH:MM:SS``."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise InvalidInput(f"--time={text}: expected minutes, HH:MM:SS or D-HH:MM:SS", where=file)
    days, *rest = match.groups()
    numbers = [int(group) for group in rest if group is not None]
    if days is not None:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0, [*numbers, 0][:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def _array(text: str, conversion: Conversion, file: str) -> None:
    """Tasks keep their variable SLURM_ARRAY_TASK_ID."""
    spans, percent, at_once = text.partition("%")
    indices: list[int] = []
    for span in spans.split(","):
        match = _ARRAY.fullmatch(span.strip())
        last = int(match[2] or match[1]) if match else 0
        if match is None or last - int(match[1]) > MAX_LISTED:
            raise InvalidInput(
                f"--array={text}: expected numbers and ranges such as 0-9, at most {MAX_LISTED:,}", where=file
            )
        indices += range(int(match[1]), last + 1, int(match[3] or 1))
    conversion.job["array"] = {"grid": {"SLURM_ARRAY_TASK_ID": indices}}
    if percent:
        conversion.job["array"]["parallel"] = int(at_once)


def _environment(text: str | None, conversion: Conversion) -> None:
    for part in (text or "").split(","):
        name, equals, value = part.partition("=")
        if equals:
            conversion.variable(name, value)
        elif name and name not in ("ALL", "NONE"):
            conversion.variable(name, None)
    if text is None or "ALL" in text:
        conversion.lose("the variables of your shell: name those that the job needs under `envs:` or `secrets:`")


def _commands(text: str, conversion: Conversion) -> str:
    """The script without directives, modules and `srun`."""
    script_lines, modules = list[str](), list[str]()
    while (joined := _CONTINUED_SRUN.sub(r"\1 ", text)) != text:
        text = joined
    lines = _HOSTS.sub('echo "$SKYPILOT_NODE_IPS"', text).splitlines()
    if lines and lines[0].startswith("#!"):
        lines = lines[1:]
    for line in lines:
        stripped = line.strip()
        if stripped.startswith("#SBATCH"):
            continue
        if re.match(r"(?:module|ml)\s", stripped):
            modules.append(stripped)
        elif not re.fullmatch(r"cd\s+\"?\$\{?SLURM_SUBMIT_DIR\}?\"?/?", stripped):
            script_lines.append(_without_srun(line, conversion))
    if modules:
        conversion.lose(
            f"{'; '.join(modules)}: modules are of one cluster. On it, write them into `run:`; elsewhere install what"
            " they bring in `setup:`, or name an `image_id:`"
        )
    script = "\n".join(script_lines).strip("\n") + "\n"
    return conversion.rename_variables(script, "SLURM", _VARIABLES)


def _without_srun(line: str, conversion: Conversion) -> str:
    match = _SRUN.search(line)
    if match is None:
        return line
    rest, taken = match["rest"], dict[str, str]()
    while option := re.match(r"\s+(--?[A-Za-z][\w-]*)(?:=(\"[^\"]*\"|\S+))?", rest):
        rest, name, value = rest[option.end() :], option[1], option[2]
        takes = name.lstrip("-") not in _FLAGS | {"unbuffered", "label", "pty", "u", "l", "kill-on-bad-exit"}
        if value is None and takes and (follows := re.match(r"\s+([^\s-]\S*)", rest)):
            is_short = not name.startswith("--")
            if is_short and len(name) > 2:  # -n4
                value = name[2:]
            elif is_short or re.fullmatch(r"[\d:,.%=A-Z-]+", follows[1]):
                rest, value = rest[follows.end() :], follows[1]
        taken[name] = value or ""
    image = taken.get("--container-image", "").strip("\"'")
    if image:
        conversion.resource("image_id", f"docker:{image.replace('#', '/')}")
    conversion.lose(
        *(f"{name}={value} of srun" for name, value in taken.items() if name.startswith("--container-mounts"))
    )
    return f"{line[: match.start()]}{match['before']}{rest.lstrip()}"
