"""What a job file says, and every mistake in it, once, with its line."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.errors import InvalidInput, Problem
from broker.core.job.file import parse_job
from broker.core.job.jobs import (
    CheckpointPlan,
    Constraints,
    Data,
    Job,
    MachineRequest,
    Model,
    Priority,
    Retry,
    Work,
    Workload,
)
from broker.core.market.offers import CapacityType, Interconnect
from broker.core.values.money import Money
from tests import counts

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
FULL = """\
name: llama-7b-qlora
team: nlp
project: assistants
environment: staging
workload: batch
resources: {accelerators: "H100:8"}
run: python train.py --resume "$GPUBROKER_CHECKPOINT_DIR"
setup: pip install -r requirements.txt
workdir: .
num_nodes: 2
envs: {EPOCHS: 3, RATE: 1.10, DEBUG: true, AT: 12:30, MODE: no, EMPTY: ""}
secrets: [HF_TOKEN, "secrets:WANDB_API_KEY"]
file_mounts: {/data: s3://bucket, /out: {name: results, store: gcs, mode: MOUNT}}
work: 48h on A100-80GB:8
deadline: 60h
max_duration: 72h
max_cost: $900
value_of_time: $4
max_unattended: 2h
checkpoint: {every: 10m, size: 14GB, restart: 6m, keep: 5}
retry: {failures: 2, backoff: 1m}
data: {location: "aws/us-east-1", size: 500GB, sensitive: false}
constraints: {providers: [aws, gcp], regions: ["us-*"], capacity_types: [spot, owned], interconnect: nvlink}
priority: high
"""


def job(text: str, file: str = "job.yaml") -> Job:
    return parse_job(text, file=file, now=NOW)


def problems(text: str | bytes) -> tuple[Problem, ...]:
    with pytest.raises(InvalidInput) as caught:
        parse_job(text, file="team/job.yaml", now=NOW)
    assert caught.value.where == "team/job.yaml"
    assert caught.value.exit_code == 2
    assert caught.value.problems
    return caught.value.problems


def only(text: str | bytes) -> str:
    (problem,) = problems(text)
    return str(problem)


def test_everything_a_job_file_can_say() -> None:
    assert job(FULL) == Job(
        name="llama-7b-qlora",
        team="nlp",
        project="assistants",
        environment="staging",
        workload=Workload.BATCH,
        resources=(MachineRequest(accelerator="H100", count=8),),
        run='python train.py --resume "$GPUBROKER_CHECKPOINT_DIR"',
        setup="pip install -r requirements.txt",
        workdir=".",
        num_nodes=2,
        envs={"EPOCHS": "3", "RATE": "1.10", "DEBUG": "true", "AT": "12:30", "MODE": "no", "EMPTY": ""},
        secrets=("HF_TOKEN", "WANDB_API_KEY"),
        file_mounts={"/data": "s3://bucket", "/out": {"name": "results", "store": "gcs", "mode": "MOUNT"}},
        work=Work(duration=timedelta(hours=48), accelerator="A100-80GB", count=8),
        deadline=timedelta(hours=60),
        max_duration=timedelta(hours=72),
        max_cost=Money.usd(900),
        value_of_time=Money.usd(4),
        max_unattended=timedelta(hours=2),
        checkpoint=CheckpointPlan(
            every=timedelta(minutes=10), size=14 * 10**9, restart=timedelta(minutes=6), keep=5
        ),
        retry=Retry(failures=2, backoff=timedelta(minutes=1)),
        data=Data(location="aws/us-east-1", size=500 * 10**9),
        constraints=Constraints(
            providers=("aws", "gcp"),
            regions=("us-*",),
            capacity_types=(CapacityType.SPOT, CapacityType.OWNED),
            interconnect=Interconnect.NVLINK,
        ),
        priority=Priority.HIGH,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("file", "name"), [("x.yaml", "x"), ("C:\\a\\b c.yml", "b-c"), ("-", "job"), ("", "job"), ("été.yaml", "t")]
)
def test_a_job_without_a_name_is_named_after_its_file(file: str, name: str) -> None:
    assert job("run: x", file=file).name == name


def test_a_model_to_be_sized() -> None:
    sized = job("run: x\nmodel: {parameters: 7B, method: qlora, sequence_length: 4096, layers: 32, tokens: 2T}")
    assert sized.resources == ()
    assert sized.model == Model(
        parameters=7e9, method="qlora", sequence_length=4096, extra={"layers": 32, "tokens": 2e12}
    )


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("60h", timedelta(hours=60)),
        ("2026-12-01T18:00Z", datetime(2026, 12, 1, 18, tzinfo=UTC)),
        ("2026-12-01T18:00+02:00", datetime(2026, 12, 1, 16, tzinfo=UTC)),
        ("'2026-12-01 18:00:00Z'", datetime(2026, 12, 1, 18, tzinfo=UTC)),
    ],
)
def test_deadlines(written: str, meant: timedelta | datetime) -> None:
    assert job(f"run: x\ndeadline: {written}").deadline == meant


SECRET = "hunter2-do-not-print"


@pytest.mark.parametrize(
    ("secrets", "names"),
    [
        ("[A, B, A]", ("A", "B")),
        ("{A: null, B: }", ("A", "B")),
        ("{'secrets:A': null}", ("A",)),
        ('{A: ""}', ("A",)),
        ("[]", ()),
    ],
)
def test_only_the_names_of_secrets_are_kept(secrets: str, names: tuple[str, ...]) -> None:
    assert job(f"run: x\nsecrets: {secrets}").secrets == names


@pytest.mark.parametrize("secrets", [f"{{A: {SECRET}}}", SECRET, f"[{{A: {SECRET}}}]", f"{{A: [{SECRET}]}}"])
def test_a_secret_in_the_file_is_refused_and_not_repeated(secrets: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        job(f"run: x\nsecrets: {secrets}")
    (problem,) = caught.value.problems
    assert SECRET not in f"{caught.value!r} {caught.value} {caught.value.hint} {problem!r}"
    assert problem.line == 2


def test_advice_for_a_literal_secret() -> None:
    assert "export the variable before you submit" in only("run: x\nsecrets: {A: abc}")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("name: my job", "line 2: name: expected letters, digits, '.', '_' and '-' only, starting with a"),
        ("team: -x", "line 2: team: expected letters, digits"),
        (f"project: {'x' * 64}", "line 2: project: expected letters, digits"),
        ("name: 5", "line 2: name: expected text; got 5; write it in quotes"),
        ("environment:", "line 2: environment: has no value; write one, or delete the line"),
        ("tem: nlp", "line 2: tem: unknown key; did you mean 'team'?"),
        ("accelerators: H100", "line 2: accelerators: belongs under `resources:`, not at the top"),
        ("every: 10m", "line 2: every: belongs under `checkpoint:`, not at the top"),
        ("num_nodes: 0", "line 2: num_nodes: must be at least 1; got 0"),
        ("num_nodes: true", "line 2: num_nodes: expected a whole number; got true"),
        ("num_nodes: 1000000", "line 2: num_nodes: must be at most 10000; got 1000000"),
        ("workload: trainng", "line 2: workload: expected one of training, batch, inference, "),
        ("priority: 5", "line 2: priority: expected one of low, normal, high, urgent; got 5"),
        ("deadline: 60", "line 2: deadline: expected a duration with its unit"),
        ("deadline: -5h", "line 2: deadline: must not be negative"),
        ("deadline: 0h", "line 2: deadline: leaves no time at all"),
        ("deadline: 2020-01-01T00:00Z", "line 2: deadline: is in the past: 2020-01-01T00:00Z, and now it is"),
        ("deadline: 2026-11-21T12:00Z", "line 2: deadline: is in the past"),
        ("deadline: 2026-12-01", "line 2: deadline: has no time zone; write 2026-12-01T00:00Z for UTC"),
        ("deadline: 2026-13-45T00:00Z", "line 2: deadline: expected a time such as"),
        ("deadline: 9999-12-31T23:59-23:00", "line 2: deadline: expected a time such as"),
        ("deadline: 2126-12-31T23:59Z", "line 2: deadline: is more than ten years away"),
        ("max_duration: 72", "line 2: max_duration: expected a duration with its unit, such as 90s, 12m, 48h"),
        ("max_duration: 0h", "line 2: max_duration: must be longer than nothing"),
        ("max_cost:", "line 2: max_cost: has no value; write one, or delete the line"),
        ("max_cost: 900", "line 2: max_cost: expected an amount with currency, such as $900; got '900'"),
        ("max_cost: 900 EUR", "line 2: max_cost: expected an amount with currency, such as $900"),
        ("max_cost: -$5", "line 2: max_cost: must not be negative"),
        ("work: 48", "line 2: work: expected an amount of work such as 48h on A100-80GB:8"),
        ("work: 48 parsecs", "line 2: work: expected a duration with its unit"),
        ("work: 48h on A1000:8", "line 2: work: unknown accelerator 'A1000'; did you mean"),
        ("work: 0h", "line 2: work: there is nothing to do"),
        ("checkpoint: {every: 0s}", "line 2: checkpoint.every: must be longer than nothing"),
        ("checkpoint: {size: 14}", "line 2: checkpoint.size: expected a size with its unit, such as 14GB"),
        ("checkpoint: {keep: 0}", "line 2: checkpoint.keep: must be at least 1; got 0"),
        ("checkpoint: {evry: 1m}", "line 2: checkpoint.evry: unknown key; did you mean 'every'?"),
        ("checkpoint: 10m", "line 2: checkpoint: expected lines of the form 'key: value'; got '10m'"),
        ("retry: {failures: -1}", "line 2: retry.failures: must be at least 0; got -1"),
        ("retry: {launches: 0}", "line 2: retry.launches: must be at least 1; got 0"),
        ("retry: {backoff: 1}", "line 2: retry.backoff: expected a duration with its unit"),
        ("data: {location: us-east-1}", "line 2: data.location: expected provider/region, such as aws/us-east-1"),
        ("data: {sensitive: perhaps}", "line 2: data.sensitive: expected true or false"),
        ("constraints: {providers: aws}", "line 2: constraints.providers: expected a list, such as [a, b]; got 'aws'"),
        ("constraints: {providers: []}", "line 2: constraints.providers: is an empty list"),
        ("constraints: {regions: ['us east']}", "line 2: constraints.regions[0]: expected a name or a pattern"),
        ("constraints: {regions: [*]}", "line 2: is not valid YAML: a value that starts with * or & is a reference"),
        ("constraints: {capacity_types: [spt]}", "line 2: constraints.capacity_types[0]: expected one of owned"),
        ("constraints: {interconnect: nvlnk}", "line 2: constraints.interconnect: expected one of nvlink, pcie, none"),
        ("model: {method: qlora}", "line 2: model.parameters: is missing"),
        ("model: {parameters: 7X}", "line 2: model.parameters: expected a count, such as 7B"),
        ("model: {parameters: 7B, method: qlroa}", "line 2: model.method: expected one of adamw, sgd"),
        ("model: {parameters: 7B}\nresources: {cpus: 4}", "line 3: resources: give either `resources` or a `model`"),
        ("envs: {1A: x}", "line 2: envs.1A: expected the name of a variable"),
        ("envs: {A: }", 'line 2: envs.A: has no value; write one ("" for none), or give `--env A=VALUE` or'),
        ("envs: {A: [1]}", "line 2: envs.A: expected text"),
        ("envs: {GPUBROKER_X: 1}", "line 2: envs.GPUBROKER_X: names that start with GPUBROKER_ are set by gpubroker"),
        ('envs: {A: "x\\0y"}', "line 2: envs.A: contains a NUL character"),
        ("envs: [A=1]", "line 2: envs: expected lines of the form 'key: value'; got a list"),
        ("secrets: [1A]", "line 2: secrets[0]: expected the name of a variable"),
        ("secrets: [A]\nenvs: {A: 1}", "line 3: envs.A: is also under `secrets`"),
        ("workdir: {url: git@x, ref: main}", "line 2: workdir: expected the address of a Git repository"),
        ("workdir: ''", "line 2: workdir: is empty"),
        ("file_mounts: {/data: }", "line 2: file_mounts./data: has no value"),
        ("file_mounts: {/data: 5}", "line 2: file_mounts./data: expected a local path, a bucket such as s3://name"),
        ("file_mounts: {/data: {sorce: x}}", "line 2: file_mounts./data: unknown key 'sorce'; did you mean 'source'?"),
        ("outputs: /results", "line 2: outputs: /results is outside of the working folder"),
        ("outputs: [a, ../b]", "line 2: outputs[1]: ../b is outside of the working folder"),
        ("outputs: []", "line 2: outputs: expected paths within the working folder"),
        ("outputs: {s3://bucket: 5}", "line 2: outputs: expected paths within the working folder"),
        ("resume_from: a b", "line 2: resume_from: expected a job, and a step if not its newest checkpoint"),
        ("resume_from: job@newest", "line 2: resume_from: expected a job"),
        ("setup: [pip install x]", "line 2: setup: expected text; got a list"),
        ("run: y", "line 2: the key 'run' is given twice (first in line 1)"),
        ("a: !!python/object:os.system x", "line 2: tags such as"),
        ("name: 'x", "line 2: is not valid YAML: a quote that is opened here is never closed"),
    ],
)  # fmt: skip
def test_one_mistake_one_message_in_its_line(lines: str, expected: str) -> None:
    assert only(f"run: x\n{lines}\n").startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty; expected a job file: lines of the form 'key: value'"),
        ("name: x", "line 1: run: is missing; expected the command that does the work, such as `run: python train.py`"),
        ("name: x\nrun:", "line 2: run: is missing; expected the command"),
        ("run: ' '", "line 1: run: is empty; write the command"),
        ("run: true", 'line 1: run: expected text; got true; write it in quotes: "true"'),
        ("run: [python, x]", "line 1: run: expected text; got a list"),
        ("- run", "line 1: expected lines of the form 'key: value', got a list"),
        ("#" * 10_000_000, "is larger than 1 MB; a job file is a few lines of YAML"),
        (b"run: \xff", "is not UTF-8 text"),
    ],
)
def test_files_that_are_not_job_files(text: str | bytes, expected: str) -> None:
    assert only(text).startswith(expected)


@pytest.mark.parametrize(
    "value",
    ["$(rm -rf ~)", "a;b|c&d", "`x`", "'\"", "line 1\nline 2\n", "日本語 🙂", " spaces ", "${HOME}", "a: b", "\x1b[0m"],
)
def test_values_of_variables_are_kept_verbatim(value: str) -> None:
    written = re.sub(r"[^\x20-\x7e]|[\"\\]", lambda match: f"\\U{ord(match[0]):08x}", value)
    assert job(f'run: x\nenvs:\n  A: "{written}"\n').envs == {"A": value}


def test_a_blank_setup_is_no_setup() -> None:
    assert job("run: x\nsetup: ''").setup is None
    assert "setup" not in job("run: x\nsetup: |\n  \n").needs


# Fuzzing: whatever is done to a job file, the answer is a job or InvalidInput.

_LINES = FULL.splitlines()
_WORDS = [
    "null", "-1", "0", "true", "[]", "{}", "*", "&a", "!x", "'", '"', "\t", "1e999", ".nan", "H100:8", "\0", "<<",
    "9" * 400, "$-5", "no", "- ", ": ", "\ufeff", "{a: {b: {c: d}}}", "2026-12-01", "0000-00-00", "48h on",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = "\n".join(draw(st.permutations(_LINES)) if draw(st.booleans()) else _LINES)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        text = text[:start] + draw(st.sampled_from(_WORDS) | st.text(max_size=6)) + text[end:]
    return text


@st.composite
def revalued(draw: st.DrawFn) -> str:
    """A job file with the value of one key, at any depth, exchanged for something else."""
    spots = [match.span(1) for match in re.finditer(r": ([^,{}\n]+)", FULL)]
    start, end = draw(st.sampled_from(spots))
    return FULL[:start] + draw(st.sampled_from(_WORDS) | st.text(max_size=10)) + FULL[end:]


def findings_or_job(text: str) -> Job | tuple[Problem, ...]:
    try:
        return job(text)
    except InvalidInput as error:
        return error.problems


@settings(max_examples=300 if counts.FULL else 60)
@given(mutated() | revalued())
def test_mutated_files_give_a_job_or_a_located_error(text: str) -> None:
    found = findings_or_job(text)
    assert isinstance(found, Job) or (found and len(set(found)) == len(found))


@given(st.text() | st.binary())
def test_anything_gives_a_job_or_a_located_error(text: str | bytes) -> None:
    with pytest.raises(InvalidInput):
        parse_job(text, file="x", now=NOW)
