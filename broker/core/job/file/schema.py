"""The shape of a job file where it differs from that of a job, and the single values that only a job file has: the
accepted forms, and the error message for any other; a Git repository as ``workdir``, which each machine fetches before
the job's own setup, as with SkyPilot."""

import re
import shlex
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema

from broker.core.errors import did_you_mean
from broker.core.job.fields import NUMBER_OR_TEXT, TEXT, Name, OneOrMore, Positive, variable_name, without_nul
from broker.core.job.file import skypilot_fields
from broker.core.job.file.accelerator_requests import Accelerators, parse_alternatives, parse_machine
from broker.core.job.file.after import AfterField
from broker.core.job.file.arrays import ArrayField
from broker.core.job.file.skypilot_fields import STORAGE_KEYS
from broker.core.job.jobs import JobFields, ResumePoint, Work
from broker.core.market.offers import CapacityType
from broker.core.validation import parse_each
from broker.core.values.provider_names import provider_name
from broker.core.values.units import Count, parse_cpus, parse_duration, parse_memory

_KEYS = ("url", "ref")
_URL = re.compile(r"(?:https?://|ssh://|git://|file://|[\w.-]+@[\w.-]+:)[^\s-][^\s]*")
_WITH_PASSWORD = re.compile(r"https?://[^/]*@")
_MARK = "# workdir: a Git repository\n"
_FETCH_COMMANDS = re.compile(
    re.escape(_MARK) + r"git init --quiet \. && .* --quiet --depth 1 -- (.+) && git checkout .*\n"
)
_FETCHING_COMMIT = re.compile(
    re.escape(_MARK)
    + r"git init --quiet \. && .* fetch --quiet -- (.+); \} && git checkout --quiet --force (\w+) \|\| .*\n"
)
# A name does not begin with a dash, because Git would read it as an option.
_REF = re.compile(r"[^\s\-:~^?*\[\\][^\s:~^?*\[\\]{0,199}")


@dataclass(frozen=True, slots=True)
class Repository:
    """``ref``: a branch, a tag or a commit; None for the repository's default branch. ``commit``: the commit of ``ref``
    at submission; None if it was not looked up: then each attempt fetches the commit of ``ref`` at its start."""

    url: str
    ref: str | None = None
    commit: str | None = None

    def fetch_commands(self) -> str:
        """Shell commands that put the repository's files into the current folder, and exit the shell if they fail. They
        can be repeated. A variable ``GIT_TOKEN``, such as a secret of the job, is the password for an https address."""
        url, ref = shlex.quote(self.url), shlex.quote(self.ref or "HEAD")
        helper = '!f() { echo username=x-access-token; echo "password=$GIT_TOKEN"; }; f'
        # Over http the password would be sent unencrypted; over SSH none is used.
        uses_token = self.url.startswith("https://")
        token = f"${{GIT_TOKEN:+-c credential.helper={shlex.quote(helper)}}} " if uses_token else ""
        git = f"GIT_TERMINAL_PROMPT=0 git {token}"
        if self.commit is None:
            fetch, revision = f"{git}fetch --quiet --depth 1 -- {url} {ref}", "FETCH_HEAD"
        else:  # some servers do not serve a single commit
            by_commit = f"{git}fetch --quiet --depth 1 -- {url} {self.commit} 2>/dev/null"
            fetch, revision = f"{{ {by_commit} || {git}fetch --quiet -- {url} {ref}; }}", self.commit
        return f"{_MARK}git init --quiet . && {fetch} && git checkout --quiet --force {revision} || exit 1\n"


def repository_of_setup(setup: str | None) -> Repository | None:
    """The repository that the first command of a job's setup fetches, if its commit was not looked up yet; otherwise
    None."""
    if setup is None or (match := _FETCH_COMMANDS.match(setup)) is None:
        return None
    try:
        url, ref = shlex.split(match[1])
    except ValueError:
        return None
    fetched = Repository(url, None if ref == "HEAD" else ref)
    return fetched if setup.startswith(fetched.fetch_commands()) else None


def unpin(setup: str | None) -> str | None:
    """The setup as before `pin`, so that its branch or tag is looked up again; unchanged if no commit is pinned."""
    if setup is None or (match := _FETCHING_COMMIT.match(setup)) is None:
        return setup
    try:
        url, ref = shlex.split(match[1])
    except ValueError:
        return setup
    fetched = Repository(url, None if ref == "HEAD" else ref, match[2])
    commands = fetched.fetch_commands()
    return (
        replace(fetched, commit=None).fetch_commands() + setup.removeprefix(commands)
        if setup.startswith(commands)
        else setup
    )


def pin(setup: str, fetched: Repository, commit: str) -> str:
    """The setup, whose first command fetches ``fetched``, changed to fetch this commit."""
    return replace(fetched, commit=commit).fetch_commands() + setup.removeprefix(fetched.fetch_commands())


def repository(value: object) -> Repository:
    """A repository as ``workdir: {url: …, ref: …}`` names it. Raises `ValueError`."""
    if not isinstance(value, dict):
        raise ValueError("expected a local folder, or a Git repository as {url: https://…, ref: main}")
    for key in value:
        if key not in _KEYS:
            raise ValueError(f"unknown key {str(key)[:40]!r}{did_you_mean(str(key), _KEYS)}; known: url, ref")
    url, ref = value.get("url"), value.get("ref")
    if not isinstance(url, str) or not _URL.fullmatch(url):
        raise ValueError(f"expected the address of a Git repository, such as https://github.com/a/b; got {url!r}")
    if _WITH_PASSWORD.match(url):
        raise ValueError(
            "the password in the address would be stored with the job; leave it out, and give the token as"
            " a secret: `--secret GIT_TOKEN`"
        )
    if ref is not None and (not isinstance(ref, str) or not _REF.fullmatch(ref)):
        raise ValueError(f"ref: expected a branch, a tag or a commit, in quotes if it is a number; got {ref!r}")
    return Repository(url, ref)


_CLOUDS_WITH_FREE_PATH = frozenset({"kubernetes", "k8s", "ssh"})
_RESUME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,62})(?:@([0-9]{1,12}))?")


def _content(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty; write something, or delete the line")
    return without_nul(value)


def _workdir(value: object) -> str | Repository:
    return _content(value) if isinstance(value, str) else repository(value)


def _infra(value: str) -> str:
    parts = value.strip().strip("/").split("/")
    parts[0] = provider_name(parts[0].lower())
    has_valid_length = len(parts) <= 3 or parts[0] in _CLOUDS_WITH_FREE_PATH
    if not has_valid_length or not all(part and part.isprintable() and not re.search(r"\s", part) for part in parts):
        raise ValueError(f"expected provider[/region[/zone]], such as aws/us-east-1; got {value[:70]!r}")
    return "/".join(parts)


def _single_place(value: object) -> object:
    if isinstance(value, list):
        raise ValueError("takes one; for several write `any_of`, or `providers` and `regions` under `constraints`")
    return value


def _place(value: str) -> str:
    if not value or not value.isprintable() or re.search(r"[\s/]", value):
        raise ValueError(f"expected one name without spaces and slashes, such as us-east-1; got {value[:70]!r}")
    return value


def _work(value: object) -> Work:
    expected = "expected an amount of work such as 48h on A100-80GB:8 (or 48h, on whatever it gets)"
    if not isinstance(value, str):
        raise ValueError(f"{expected}; got {str(value)[:40]!r}")
    amount, on, machine = value.strip().partition(" on ")
    duration = parse_duration(amount)
    if duration <= timedelta(0):
        raise ValueError(f"there is nothing to do; {expected}")
    if not on:
        return Work(duration=duration)
    name, count = parse_machine(machine)
    return Work(duration=duration, accelerator=name, count=count)


def _secret(name: object, value: object) -> tuple[str, bool]:
    """The name, and whether the secret is optional (``HF_TOKEN: ""``)."""
    # The value must not come near a message, a log or the job.
    if value not in (None, ""):
        raise ValueError(
            "a secret's value does not belong in a file; leave it empty here and export the variable before you submit"
        )
    return variable_name(name.removeprefix("secrets:") if isinstance(name, str) else name), value == ""


def _secrets(value: object) -> dict[str, bool]:
    if isinstance(value, dict):
        return dict(parse_each(value.items(), _secret))
    if isinstance(value, list):
        return dict(parse_each(enumerate(value), lambda _, name: _secret(name, None)))
    raise ValueError("expected a list of names of variables, such as [HF_TOKEN]; their values come from yours")


def _mount(target: str, source: object) -> tuple[str, Any]:
    if not target.strip():
        raise ValueError("expected the path on the machine before the ':'")
    if isinstance(source, dict):
        for key in source:
            if key not in STORAGE_KEYS:
                keys = ", ".join(sorted(STORAGE_KEYS))
                raise ValueError(f"unknown key {key!r}{did_you_mean(key, STORAGE_KEYS) or f'; known here: {keys}'}")
        if not source.get("name") and not source.get("source"):
            raise ValueError("names no bucket; write its `name`, or a `source` such as s3://my-bucket")
    elif not isinstance(source, str) or not source.strip():
        raise ValueError("expected a local path, a bucket such as s3://name, or a mapping with name, source, store, …")
    return target, source


def _mounts(value: object) -> object:
    return dict(parse_each(value.items(), _mount)) if isinstance(value, dict) else value


def _resume_from(value: object) -> ResumePoint:
    match = _RESUME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"expected a job, and a step if not its newest checkpoint: my-job or my-job@60; got {value!r}")
    return ResumePoint(job=match[1], step=None if match[2] is None else int(match[2]))


_SECRET_NAMES = {"type": "object", "additionalProperties": {"enum": [None, ""]}}

Workdir = Annotated[
    str | Repository,
    PlainValidator(_workdir),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {"url": {"type": "string"}, "ref": {"type": "string"}},
                    "required": ["url"],
                    "additionalProperties": False,
                },
            ],
            "description": "a folder that the job starts in, or a Git repository that each machine fetches",
        }
    ),
]
Place = Annotated[str, BeforeValidator(_single_place), AfterValidator(_place)]
Infra = Annotated[str, AfterValidator(_infra)]
AcceleratorsField = Annotated[
    Accelerators,
    PlainValidator(parse_alternatives),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                {"type": "object", "additionalProperties": {"type": ["number", "string", "null"]}, "minProperties": 1},
            ],
            "description": "H100:8, H100:4+, 80GB+; a list in order of preference; or a mapping of names to counts",
        }
    ),
]
Cpus = Annotated[float, PlainValidator(parse_cpus), NUMBER_OR_TEXT]
Memory = Annotated[float, PlainValidator(parse_memory), NUMBER_OR_TEXT]
WorkField = Annotated[Work, PlainValidator(_work), TEXT]
Secrets = Annotated[
    dict[str, bool],
    PlainValidator(_secrets),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, _SECRET_NAMES]}),
]
ResumeFrom = Annotated[ResumePoint, PlainValidator(_resume_from), TEXT]
FileMounts = Annotated[dict[str, Any], BeforeValidator(_mounts)]


class Section(BaseModel):
    """Unknown keys are rejected; missing ones stay None, so that defaults live in `broker.core.job.jobs`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    def given(self) -> dict[str, Any]:
        """The fields that the file sets."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


class MachineSection(Section):
    """One acceptable machine, or the part of it that all alternatives share."""

    accelerators: AcceleratorsField | None = None
    gpus: AcceleratorsField | None = None
    sharing: Literal["soft"] | None = None
    cpus: Cpus | None = None
    memory: Memory | None = None
    infra: Infra | None = None
    cloud: Place | None = None
    region: Place | None = None
    zone: Place | None = None
    instance_type: Place | None = None
    use_spot: bool | None = None
    capacity_types: OneOrMore[CapacityType] | None = None
    disk_size: Memory | None = None
    disk_tier: skypilot_fields.DiskTierField | None = None
    network_tier: skypilot_fields.NetworkTierField | None = None
    image_id: skypilot_fields.Image | None = None
    ports: skypilot_fields.Ports | None = None
    labels: skypilot_fields.Labels | None = None
    job_recovery: skypilot_fields.JobRecovery | None = None
    autostop: skypilot_fields.Autostop | None = None
    accelerator_args: skypilot_fields.TpuArguments | None = None


class Resources(MachineSection):
    """The acceptable machines."""

    any_of: OneOrMore[MachineSection] | None = None
    ordered: OneOrMore[MachineSection] | None = None


class ModelSection(Section):
    """A model to be sized. Keys without a field in `broker.core.job.jobs.Model` go into its ``extra``."""

    parameters: Count
    method: Literal["adamw", "sgd", "lora", "qlora", "inference"] | None = None
    sequence_length: Positive | None = None
    batch_size: Positive | None = None
    precision: Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4"] | None = None
    layers: Positive | None = None
    hidden_size: Positive | None = None
    heads: Positive | None = None
    kv_heads: Positive | None = None
    head_dim: Positive | None = None
    vocabulary: Positive | None = None
    activation_checkpointing: bool | None = None
    tokens: Count | None = None


class JobFile(JobFields):
    """A job file; its keys, and those of its sections, are given if they are in ``model_fields_set``."""

    model_config = ConfigDict(extra="forbid")

    name: Name | None = None
    resources: Resources | None = None
    model: ModelSection | None = None
    workdir: Workdir | None = None
    file_mounts: FileMounts = Field(default_factory=dict)
    secrets: Secrets = Field(default_factory=dict)
    work: WorkField | None = None
    array: ArrayField | None = None
    after: AfterField = ()
    resume_from: ResumeFrom | None = None
    inputs: skypilot_fields.Inputs | None = None
    config: skypilot_fields.SkyPilotConfig | None = None


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of job files, for completion and checks in editors. It checks less than `parse_job`:
    neither known names nor contradictions."""
    schema = JobFile.model_json_schema()
    for part in (schema, *schema["$defs"].values()):
        if "properties" in part:
            part["additionalProperties"] = False
        for field in part.get("properties", {}).values():
            if isinstance(field.get("default"), dict | float):  # as a job has it, not as a file says it
                del field["default"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Job file"}
