"""A printed job file is read back as the same job."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.job.file import parse_job, print_job
from broker.core.job.jobs import (
    CheckpointPlan,
    Constraints,
    Data,
    DiskTier,
    Job,
    MachineRequest,
    Model,
    NetworkTier,
    Priority,
    Retry,
    Work,
    Workload,
)
from broker.core.market.accelerators import accelerator_names
from broker.core.market.offers import CapacityType, Interconnect
from broker.core.values.money import Money
from tests.counts import FULL

NOW = datetime(2026, 11, 21, tzinfo=UTC)
YEARS = timedelta(days=3650)

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40) | st.sampled_from(
    [
        "no",
        "on",
        "12:30",
        "1e3",
        "017",
        "null",
        "~",
        "a: b",
        "# x",
        "*",
        "line\nline\n",
        "\ttab",
        " x ",
        "|",
        "1.10",
        "é\u2028",
    ]
)
content = text.filter(str.strip)
durations = st.timedeltas(timedelta(0), YEARS)
positive = st.timedeltas(timedelta(microseconds=1), YEARS)
sizes = st.integers(0, 10**18) | st.integers(0, 1000).map(lambda n: n * 10**9)
whole = st.integers(1, 10**9)
patterns = st.lists(st.from_regex(r"[a-z*?][a-z0-9*-]{0,8}", fullmatch=True), max_size=3).map(tuple)
capacity_types = st.lists(st.sampled_from(CapacityType), max_size=4).map(tuple)
places = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
variables = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: not name.startswith("GPUBROKER_")
)
filled_in = content.filter(lambda text: "$" not in text)  # a file with variables in paths has values for them
mounts = filled_in | st.fixed_dictionaries(
    {"source": filled_in}, optional={"store": places, "persistent": st.booleans(), "config": st.just({"disk_size": 5})}
)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


@st.composite
def machines(draw: st.DrawFn) -> MachineRequest:
    accelerator = draw(optional(st.sampled_from(accelerator_names())))
    return MachineRequest(
        accelerator=accelerator,
        count=draw(st.integers(1, 1024)) if accelerator else 0,
        cpus=draw(optional(st.floats(0.01, 100_000))),
        memory_gib=draw(optional(st.floats(1 / 1024, 2**20) | st.integers(1, 4096).map(float))),
        instance_type=draw(optional(places)),
        infra=draw(optional(st.lists(places, min_size=1, max_size=3).map("/".join) | st.just("*/*/zone-a"))),
        capacity_types=draw(capacity_types.filter(bool)),  # else a file leaves spot out where nothing is saved
        disk_gib=draw(optional(st.floats(1 / 1024, 2**20) | st.integers(1, 4096).map(float))),
        image=draw(optional(content)),
        at_least=bool(accelerator) and draw(st.booleans()),
        disk_tier=draw(optional(st.sampled_from(DiskTier))),
        network_tier=draw(optional(st.sampled_from(NetworkTier))),
        ports=draw(st.sampled_from([(), ("80",), ("8000-8010", "22")])),
        labels=draw(st.dictionaries(variables, text, max_size=2).map(lambda found: tuple(sorted(found.items())))),
    )


@st.composite
def works(draw: st.DrawFn) -> Work:
    accelerator = draw(optional(st.sampled_from(accelerator_names())))
    return Work(
        duration=draw(positive), accelerator=accelerator, count=draw(st.integers(1, 1024)) if accelerator else 0
    )


models = st.builds(
    Model,
    parameters=st.floats(1, 1e15),
    method=st.sampled_from(["adamw", "sgd", "lora", "qlora", "inference"]),
    sequence_length=optional(whole),
    batch_size=optional(whole),
    extra=st.fixed_dictionaries(
        {},
        optional={
            "precision": st.sampled_from(["bf16", "int4"]), "layers": whole, "activation_checkpointing": st.booleans(),
            "tokens": st.floats(1, 1e15),
        },
    ),
)  # fmt: skip


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    model = draw(optional(models))
    resources = () if model else tuple(draw(st.lists(machines(), min_size=1, max_size=3, unique_by=repr)))
    envs = draw(st.dictionaries(variables, text, max_size=3))
    return Job(
        name=draw(names),
        run=draw(content),
        team=draw(optional(names)),
        project=draw(optional(names)),
        environment=draw(optional(names)),
        workload=draw(st.sampled_from(Workload)),
        resources=resources,
        ordered=draw(st.booleans()) if resources else False,
        model=model,
        num_nodes=draw(st.integers(1, 10_000)),
        setup=draw(optional(content)),
        workdir=draw(optional(filled_in)),
        envs=envs,
        secrets=tuple(draw(st.lists(variables.filter(lambda name: name not in envs), max_size=3, unique=True))),
        file_mounts=draw(st.dictionaries(filled_in, mounts, max_size=2)),
        work=draw(optional(works())),
        deadline=draw(
            optional(
                positive
                | st.datetimes(datetime(2026, 11, 22), datetime(2036, 1, 1), timezones=st.just(UTC))  # naive bounds
            )
        ),
        max_duration=draw(optional(positive)),
        max_cost=draw(optional(st.integers(0, 10**15).map(Money))),
        value_of_time=draw(optional(st.integers(0, 10**15).map(Money))),
        max_unattended=draw(optional(positive)),
        checkpoint=CheckpointPlan(
            every=draw(optional(positive)),
            size=draw(optional(sizes)),
            restart=draw(optional(durations)),
            keep=draw(st.integers(1, 1000)),
        ),
        retry=Retry(failures=draw(st.integers(0, 1000)), backoff=draw(durations), launches=draw(st.integers(1, 1000))),
        data=Data(
            location=draw(optional(st.just("aws/us-east-1"))), size=draw(optional(sizes)), sensitive=draw(st.booleans())
        ),
        constraints=Constraints(
            providers=draw(patterns),
            regions=draw(patterns),
            capacity_types=draw(capacity_types),
            interconnect=draw(optional(st.sampled_from(Interconnect))),
        ),
        priority=draw(st.sampled_from(Priority)),
    )


@settings(max_examples=200 if FULL else 15)
@given(jobs())
def test_parsing_a_printed_job_gives_the_same_job(job: Job) -> None:
    assert parse_job(print_job(job), file="any.yaml", now=NOW) == job


def test_a_printed_job_is_a_file_that_people_would_write() -> None:
    job = Job(
        name="tune",
        team="nlp",
        resources=(MachineRequest(accelerator="H100", count=8, capacity_types=(CapacityType.SPOT,)),),
        run="cd src\npython train.py\n",
        envs={"MODE": "no"},
        work=Work(duration=timedelta(hours=48), accelerator="A100-80GB", count=8),
        deadline=timedelta(hours=60),
        max_cost=Money.usd(900),
        checkpoint=CheckpointPlan(every=timedelta(minutes=10), size=14 * 10**9),
        constraints=Constraints(providers=("aws", "gcp")),
    )
    assert print_job(job) == (
        "name: tune\n"
        "team: nlp\n"
        "resources:\n  accelerators: H100:8\n  use_spot: true\n"
        "envs:\n  MODE: 'no'\n"
        "run: |\n  cd src\n  python train.py\n"
        "work: 48h on A100-80GB:8\n"
        "deadline: 60h\n"
        "max_cost: $900.00\n"
        "checkpoint:\n  every: 10m\n  size: 14GB\n"
        "constraints:\n  providers: [aws, gcp]\n"
    )


def test_names_of_secrets_are_all_there_is_of_them() -> None:
    job = Job(name="x", run="y", resources=(MachineRequest(),), secrets=("HF_TOKEN",))
    assert "secrets: [HF_TOKEN]" in print_job(job)
