"""The Python interface, used as a program uses it: a store of its own, this machine's engine, a real reconciler."""

import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import assert_type

import gpubroker
import pytest
from gpubroker import (
    Client,
    InvalidInput,
    Job,
    JobDetails,
    JobState,
    Money,
    NoFeasibleCapacity,
    NoResult,
    NotAllowed,
    RemoteError,
    TimedOut,
    UnknownName,
)

from broker.core.errors import Problem
from broker.core.market.offers import CapacityType
from broker.core.policy.policy import Answer
from tests.program import kill, processes

JOB = Job(name="hello", run="echo hello from $GPUBROKER_JOB_ID", resources={"cpus": 1})


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    for name in list(os.environ):
        if name.startswith("GPUBROKER_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GPUBROKER_ENGINES__LOCAL__REGISTER", str(tmp_path / "given"))
    monkeypatch.chdir(tmp_path)
    with Client(home=tmp_path / "home") as made:
        yield made
    kill(processes(tmp_path / "home"))


def test_all_names_of_the_interface_are_there() -> None:
    assert all(hasattr(gpubroker, name) for name in gpubroker.__all__)
    assert (Path(gpubroker.__file__).parent / "py.typed").exists()


def test_the_public_names_are_those_that_are_printed_and_pickled() -> None:
    for name in gpubroker.__all__:
        public = getattr(gpubroker, name)
        assert pickle.loads(pickle.dumps(public)) is public
    errors = (
        UnknownName("job", "trian", ["train"], where="here"),
        InvalidInput("wrong", where="a.yaml:3", hint="right", problems=[Problem(3, 1, "max_csot", "unknown key")]),
        gpubroker.MissingExtra("aws", "this"),
        RemoteError("ValueError: x", type="ValueError", traceback="its lines"),
        gpubroker.Error("base"),
    )
    for error in errors:
        first, *_ = traceback.format_exception_only(error)
        assert first == f"gpubroker.{type(error).__qualname__}: {error}\n"
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
    assert traceback.format_exception_only(gpubroker.Error("base")) == ["gpubroker.Error: base\n"]
    assert pickle.loads(pickle.dumps(JOB)) == JOB


def test_a_plan_says_where_the_job_would_run_and_holds_nothing(client: Client) -> None:
    seen = client.plan(JOB)
    assert seen.exit_code == 0
    assert seen.placements[0].offer.capacity_type is CapacityType.OWNED
    assert seen.verdict.answer is Answer.ALLOW
    assert client.jobs() == []


def test_a_job_is_submitted_waited_for_and_read(client: Client) -> None:
    job = client.submit(JOB)
    result = job.result(timeout=timedelta(minutes=4))
    assert result.succeeded, result
    assert (result.state, result.attempt_count, result.interruptions) == (JobState.SUCCEEDED, 1, 0)
    assert result.cost_so_far == Money.ZERO
    assert result.end_reason is not None
    assert job.logs() == [f"hello from {job.id}"]
    assert job.job == JOB
    assert [one.id for one in client.jobs(states=["succeeded"])] == [job.id]
    assert client.jobs(states=[JobState.FAILED]) == []
    assert client.job("hello").id == job.id


@pytest.mark.system
def test_a_job_for_each_combination_of_variables_and_what_happened_to_it(client: Client) -> None:
    command = "echo $WHAT-$N | tee $GPUBROKER_OUTPUT_DIR/what.txt"
    tasks = client.map(JOB, {"WHAT": ["a", "b"], "N": range(1)}, run=command)
    assert all(task.result(timeout="4m").succeeded for task in tasks)
    assert [task.logs() for task in tasks] == [["a-0"], ["b-0"]]
    (file,) = tasks[1].fetch("results")
    assert (file, file.read_text()) == (Path("results/what.txt"), "b-0\n")
    assert (tasks.wait("4m").succeeded, tasks.done(), tasks.exception()) == (True, True, None)
    assert sorted(tasks.logs()) == ["[0] a-0", "[1] b-0"]
    assert sorted(map(str, tasks.fetch("all"))) == ["all/0/what.txt", "all/1/what.txt"]
    kinds = [event["kind"] for event in tasks[0].events()]
    assert kinds[0] == "submitted"
    assert kinds[-1] == "job_closed"


def train(rate: float) -> dict[str, float]:
    """Saves its state and fails for large rates, until it finds the state again."""
    from gpubroker_checkpoint import resume, save  # type: ignore[import-not-found]  # the agent brings it

    print(f"rate {rate}, {'again' if resume() else 'first'}", flush=True)
    if rate > 1 and resume() is None:
        with save("state-1.txt") as path:
            path.write_text("1")
        raise ValueError("too high", rate)
    return {"rate": rate, "loss": 2 * rate}


def results_have_the_types_of_what_makes_them(client: Client) -> None:
    """Not run: mypy reads it, as it reads a user's program; the wrong calls below are errors for it, too."""
    assert_type(client.submit(train, 1e-4, resources="H100:8", max_cost="$40").result(), dict[str, float])
    assert_type(client.submit("train.yaml", envs={"SEED": 1}).result(), JobDetails)
    assert_type([task.result() for task in client.map(train, [1e-3, 1e-4], resources="L4")], list[dict[str, float]])
    assert_type(client.map({"run": "x"}, {"SEED": range(4)})[0].result().succeeded, bool)
    assert_type(client.submit("train.yaml").logs(), list[str])
    assert_type(client.map(train, [1e-3]).logs(), list[str])
    assert_type(client.map(train, [1e-3]).wait(), JobDetails)


def test_functions_run_as_jobs(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = client.map(train, [1e-3, 5.0, 1e-4], resources="cpu", checkpoint={"every": "1m"}, max_cost="$40")
    assert tasks[0].result(timeout="4m") == {"rate": 1e-3, "loss": 2e-3}
    with pytest.raises(ValueError, match="too high") as caught:  # the others go on
        tasks[1].result()
    assert isinstance(caught.value.__cause__, RemoteError)
    assert tasks[2].result() == {"rate": 1e-4, "loss": 2e-4}
    assert [task.exception() and str(task.exception()) for task in tasks] == [None, str(caught.value), None]
    assert str(tasks.exception()) == str(caught.value)
    assert all(task.done() for task in tasks)
    tasks[0].logs(follow=True)
    assert capsys.readouterr().out == "rate 0.001, first\n"
    shown = tasks._repr_html_()
    assert f"<td>{tasks[1].id}</td><td>failed</td>" in shown
    assert "(&#x27;too high&#x27;, 5.0)" in shown

    continued = client.job(tasks[1].id).resume()  # finds its checkpoint
    assert continued.result(timeout="4m") == {"rate": 5.0, "loss": 10.0}
    assert continued.logs() == ["rate 5.0, again"]


@pytest.mark.system
def test_a_function_whose_machine_leaves_no_result(client: Client) -> None:
    def vanish() -> None:
        print("about to go", flush=True)
        os._exit(9)

    job = client.submit(vanish)
    with pytest.raises(NoResult, match="exit status 9") as caught:
        job.result(timeout="4m")
    assert "about to go" in "".join(caught.value.__notes__)
    waiting = client.submit(lambda: __import__("time").sleep(600))
    waiting.cancel()
    with pytest.raises(NoResult, match="cancelled"):
        waiting.result(timeout="4m")


def test_a_map_that_is_refused_leaves_nothing_running(client: Client) -> None:
    with pytest.raises(NoFeasibleCapacity) as caught:
        client.map(train, [1, 2], resources={"cpus": 100_000})
    assert "offers: " in "".join(caught.value.__notes__)
    assert client.jobs() == []


@pytest.mark.system
def test_a_job_goes_on_when_nobody_waits_for_it_any_longer_and_is_cancelled(client: Client) -> None:
    job = client.submit(JOB, run="sleep 600")
    with pytest.raises(TimedOut, match=job.id):
        job.result(timeout=timedelta(0))
    with pytest.raises(TimedOut, match=job.id):
        job.exception(timeout=0)
    assert not job.done()
    job.cancel()
    assert job.result(timeout=timedelta(minutes=4)).state is JobState.CANCELLED
    assert job.done()
    assert isinstance(job.exception(), NoResult)


def test_what_no_capacity_serves_is_not_submitted(client: Client) -> None:
    with pytest.raises(NoFeasibleCapacity) as caught:
        client.submit(JOB, resources={"accelerators": "H100:8", "infra": "owned"})
    assert not caught.value.preview.plan.placements
    assert caught.value.hint
    assert "JOB.yaml" not in caught.value.hint
    assert client.jobs() == []


def test_what_a_policy_denies_is_not_submitted(tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strict.yaml").write_text(
        "version: 1\npolicy: strict\nguardrails: [{name: nothing-here, allowed_locations: {providers: [aws]}}]\n"
    )
    monkeypatch.setenv("GPUBROKER_POLICY", str(tmp_path / "strict.yaml"))
    with Client(home=tmp_path / "home") as strict, pytest.raises(NotAllowed):
        strict.submit(JOB)


def test_a_job_is_a_path_keys_or_a_value(tmp_path: Path, client: Client) -> None:
    (tmp_path / "train.yaml").write_text("run: echo $A\nmax_cost: $5\nresources: {accelerators: L4}\n")
    keys = {"run": "echo $A", "name": "train", "resources": "L4:1", "max_cost": 40, "envs": {"A": 1e-4}}
    expected = Job(**keys)  # type: ignore[arg-type]
    changes = {key: keys[key] for key in ("max_cost", "envs")}
    for work in ("train.yaml", tmp_path / "train.yaml", {**keys, "max_cost": Money.usd(1)}, expected):
        assert client.read_job(work, **changes) == expected  # type: ignore[arg-type]
    assert (expected.max_cost, expected.envs, expected.resources[0].machine) == (Money.usd(40), {"A": "0.0001"}, "L4:1")


def square(number: int) -> int:
    return number * number


def numbers() -> Iterator[int]:
    yield 1


WRONG: list[tuple[Callable[[Client], object], str]] = [
    (lambda client: Job(run="x", resources={"gpus": "H100:eight"}), r"resources\.gpus: expected a whole number"),
    (lambda client: Job(run="x", max_costs="$4"), r"max_costs: unknown key; did you mean 'max_cost'"),  # type: ignore[call-arg]
    (lambda client: Job(run="x", envs={"A": object()}), "is not text, a number, a list or a dict"),
    (lambda client: client.submit("trian.yaml"), "cannot be read"),
    (lambda client: client.submit("python train.py"), "there is no file"),
    (lambda client: client.submit(5), "expected the path of a job file"),  # type: ignore[call-overload]
    (lambda client: client.submit({"run": "x"}, 5), "arguments without a function"),  # type: ignore[call-overload]
    (lambda client: client.submit(square), "cannot be called with 0 arguments"),
    (lambda client: client.submit(square, 1, run="x"), "a function and a command"),
    (lambda client: client.submit(square, 1, max_cost="forty"), "max_cost: expected an amount"),
    (lambda client: client.submit(square, 1, workdir="/nowhere"), "is not a folder"),
    (lambda client: client.submit(numbers), "is a generator function"),
    (lambda client: client.submit(square, client), "argument 1, Client"),
    (lambda client: client.map(square, 5), "expected values; got 5"),  # type: ignore[call-overload]
    (lambda client: client.map(square, "abc"), "expected values"),
    (lambda client: client.map(square, []), "expected as many values"),
    (lambda client: client.map(pow, [1, 2], [1]), "got 2, 1"),
    (lambda client: client.map(square, count()), "more than 100,000 values"),
    (lambda client: client.map({"run": "x"}, [1]), "expected the variables"),  # type: ignore[call-overload]
    (lambda client: client.map({"run": "x"}, {"1A": [1]}), "expected the name of a variable"),
    (lambda client: client.job("nobody"), "unknown job"),
    (lambda client: client.job(5), "expected text"),  # type: ignore[arg-type]
    (lambda client: client.jobs(states=["runing"]), "did you mean 'running'"),
    (lambda client: client.jobs(limit="x"), "expected a number of rows"),  # type: ignore[arg-type]
    (lambda client: client.offers(gpu="H1000"), "did you mean 'H100'"),
    (lambda client: client.offers(gpu="H100", max_price="cheap"), "expected an amount"),
    (lambda client: client.grant("nobody"), "unknown job"),
    (lambda client: Client(home=5), "expected a path"),  # type: ignore[arg-type]
    (lambda client: Client(server="https://example.org"), "no token for"),
    (lambda client: Client(token="t"), "a token is given and no server"),
]


def test_every_wrong_input_is_an_error_of_gpubroker(client: Client) -> None:
    for call, message in WRONG:
        with pytest.raises(gpubroker.Error, match=message):
            call(client)


def test_errors_say_what_is_wrong_and_where(tmp_path: Path, client: Client) -> None:
    (tmp_path / "job.yaml").write_text("run: echo hello\ntypo: 1\n")
    with pytest.raises(InvalidInput) as caught:
        client.read_job(tmp_path / "job.yaml")
    assert [(problem.line, problem.key) for problem in caught.value.problems] == [(2, "typo")]
    assert "line 2: typo: unknown key" in "".join(caught.value.__notes__)  # Python prints them
    with pytest.raises(UnknownName):
        client.job("nobody")


def test_inside_of_a_job_no_store_is_made(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBROKER_JOB_ID", "train-x1")
    with pytest.raises(InvalidInput, match="inside of the job train-x1"):
        Client()


def test_offers_are_a_list_and_in_a_notebook_a_table(client: Client) -> None:
    offers = client.offers(gpu="H100", spot=False, limit=3)
    assert [offer.accelerator for offer in offers] == ["H100"] * 3
    assert offers._repr_html_().count("<tr>") == 4
    assert client.approvals() == []
