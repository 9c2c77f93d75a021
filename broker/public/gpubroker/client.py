"""The client: one broker, over the store of this machine or at a team server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, TypeVar, Unpack, overload

from broker.app.jobs.approval_documents import ApprovalRequest
from broker.app.jobs.documents import JobDetails
from broker.app.jobs.plan_documents import PlanResult
from broker.app.market.offer_documents import OfferResult
from broker.app.market.offer_rows import OfferFilter
from broker.core.errors import InvalidInput
from broker.core.events.outcomes import JobState
from broker.core.job import jobs
from broker.core.job.arrays import DEFAULT_PARALLEL
from broker.core.market.offers import CapacityType
from gpubroker import calls
from gpubroker.job_input import Job, JobKeys, choice, money, path, read_job, text, texts
from gpubroker.job_input import limit as check_limit
from gpubroker.local import StoreBackend
from gpubroker.server import ServerBackend, login_of
from gpubroker.submitted import Backend, SubmittedJob, Tasks
from gpubroker.tables import APPROVAL_COLUMNS, JOB_COLUMNS, OFFER_COLUMNS, Table

T = TypeVar("T")
Work = str | PathLike[str] | Mapping[str, Any] | jobs.Job
"""A job: the path of a job file, the keys of one, or a value."""

_MAX_CALLS = 100_000


class Client:
    """The broker over the store of the settings (``gpubroker.toml``, ``GPUBROKER_*``), as the operating-system user of
    this process; or a team server, if GPUBROKER_SERVER names one or `gpubroker login` was used. Thread-safe.

    ``home``: another data folder of this machine. ``server``, ``token``: a server (``off``: none). Raises
    `InvalidInput` for invalid settings or a login that is not complete.
    """

    def __init__(
        self, *, server: str | None = None, token: str | None = None, home: str | PathLike[str] | None = None
    ) -> None:
        if home is not None and server not in (None, "off"):
            raise InvalidInput("a server and a folder of this machine are given", hint="give `server` or `home`")
        login = None if home is not None else login_of(server, token)
        folder = None if home is None else path(home, "home").absolute()
        self._backend: Backend = StoreBackend(folder) if login is None else ServerBackend(login)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store, or the connections to the server. Jobs continue in the background."""
        self._backend.close()

    def read_job(self, work: Work, /, **keys: Unpack[JobKeys]) -> Job:
        """The job of a job file or SkyPilot task file, or of a dict; ``keys`` take precedence over its own. Raises
        `InvalidInput` with every mistake."""
        return Job.of(read_job(work, keys, self._backend.now()))

    def plan(self, work: Work, /, **keys: Unpack[JobKeys]) -> PlanResult:
        """Where the job would run, at what cost (USD), and what the policies say, by the prices now known. Holds no
        money and launches nothing. Raises `InvalidInput` for a job that cannot be planned."""
        return self._backend.plan(read_job(work, keys, self._backend.now()))

    @overload
    def submit(self, work: Work, /, **keys: Unpack[JobKeys]) -> SubmittedJob[JobDetails]: ...
    @overload
    def submit(self, work: Callable[..., T], /, *arguments: Any, **keys: Unpack[JobKeys]) -> SubmittedJob[T]: ...
    def submit(self, work: Work | Callable[..., Any], /, *arguments: Any, **keys: Unpack[JobKeys]) -> SubmittedJob[Any]:
        """Hold the money and start a job in the background, as `gpubroker submit --yes` does: any cost within the job's
        limits is accepted, and a job that needs approval is submitted and waits for it.

        ``work``: the path of a job file, a dict of its keys, a `Job`, or a function with its ``arguments``. ``keys``:
        keys of a job file, which take precedence: ``resources="H100:8"``, ``max_cost="$40"``, ``setup="pip install
        torch"``.

        A function is pickled with cloudpickle, with the code of this machine's modules that are not installed packages.
        Its machine needs the same minor version of Python and the packages that it imports: with ``setup``, or in the
        image (``resources={"image_id": …}``). ``workdir`` brings a folder of files. It finds its checkpoint folder in
        ``$GPUBROKER_CHECKPOINT_DIR``; with ``checkpoint={"every": "10m"}`` it may use spot machines, and after an
        interruption it is called again and finds its checkpoints there. Its code and arguments are kept with the job's
        files: give passwords as ``secrets``.

        Not idempotent: each call submits a job. Raises `NotAllowed`, `NoFeasibleCapacity`, `InvalidInput`,
        `StoreProblem` or `Unreachable`; then no job exists.
        """
        if callable(work):
            return SubmittedJob(self._backend, self._submit_calls(work, [arguments], keys), is_call=True)
        if arguments:
            hint = "arguments are for functions; keys of the job are keywords: submit('train.yaml', max_cost='$40')"
            raise InvalidInput(f"arguments without a function: {arguments!r:.60}", where="submit", hint=hint)
        job = read_job(work, keys, self._backend.now())
        return SubmittedJob(self._backend, self._backend.submit(job), is_call=False)

    @overload
    def map(
        self, work: Work, values: Mapping[str, Iterable[Any]], /, *, parallel: int = ..., **keys: Unpack[JobKeys]
    ) -> Tasks[JobDetails]: ...
    @overload
    def map(
        self,
        work: Callable[..., T],
        values: Iterable[Any],
        /,
        *more: Iterable[Any],
        parallel: int = ...,
        **keys: Unpack[JobKeys],
    ) -> Tasks[T]: ...
    def map(
        self,
        work: Work | Callable[..., Any],
        values: Iterable[Any],
        /,
        *more: Iterable[Any],
        parallel: int = DEFAULT_PARALLEL,
        **keys: Unpack[JobKeys],
    ) -> Tasks[Any]:
        """Submit an array with a task for each value, ``parallel`` of them at once: ``map(train, [1e-3, 1e-4],
        resources="L4")`` calls the function with each, like Python's `map`. Of a job, ``values`` are environment
        variables, and there is a task for each combination: ``map("train.yaml", {"LR": [1e-3, 1e-4], "SEED":
        range(4)})``. Money is held, and limits of cost and deadline apply, for all of them together; the failure of one
        does not stop the others. Raises what `submit` raises.
        """
        if not callable(work):
            if more or not isinstance(values, Mapping):
                hint = "map('train.yaml', {'LR': [1e-3, 1e-4]})"
                raise InvalidInput("expected the variables of the tasks with their values", where="map", hint=hint)
            grid = {str(name): _collect(options) for name, options in values.items()}
            job = read_job(work, {**keys, "array": {"grid": grid, "parallel": parallel}}, self._backend.now())
            count = job.array.size if job.array else 0
            return Tasks(self._backend, self._backend.submit(job), count, is_call=False)
        columns = [_collect(column) for column in (values, *more)]
        lengths = {len(column) for column in columns}
        if len(lengths) > 1 or not columns[0]:
            found = ", ".join(str(len(column)) for column in columns)
            hint = "one value of each for every call" if len(lengths) > 1 else "give at least one value"
            raise InvalidInput(f"expected as many values of each argument; got {found}", where="map", hint=hint)
        array = {"range": len(columns[0]), "parallel": parallel}
        array_id = self._submit_calls(work, list(zip(*columns, strict=True)), {**keys, "array": array})
        return Tasks(self._backend, array_id, len(columns[0]), is_call=True)

    def _submit_calls(
        self, function: Callable[..., Any], arguments: Sequence[Sequence[Any]], keys: Mapping[str, Any]
    ) -> str:
        if "run" in keys:
            raise InvalidInput("a function and a command are given", where="run", hint="give one of them")
        calls.check_function(function)
        calls.check_arguments(function, arguments[0])
        workdir = path(keys["workdir"], "workdir").absolute() if "workdir" in keys else None
        with TemporaryDirectory() as folder:  # until its content is in the run store
            own = calls.job_keys(function, Path(folder))
            mounts = {**keys.get("file_mounts", {}), **own["file_mounts"]}
            job = read_job({**own, **keys, "file_mounts": mounts}, {}, self._backend.now())
            calls.pack(function, arguments, Path(folder), workdir)
            return self._backend.submit(job)

    def job(self, reference: str) -> SubmittedJob[Any]:
        """The job with that id, that unique beginning of an id, or that name (the open one, else the newest).
        Raises `UnknownName`, `InvalidInput` if several open jobs have that name, and `UnreadableJob` for one that this
        version cannot read."""
        return SubmittedJob(self._backend, self._backend.find(text(reference, "job")))

    def jobs(
        self,
        *,
        states: Sequence[JobState | str] = (),
        user: str | None = None,
        team: str | None = None,
        limit: int | None = None,
    ) -> Table[SubmittedJob[Any]]:
        """The jobs that match all given arguments, newest first; jobs that this version cannot read are left out.
        ``limit``: the maximum number; None: all."""
        wanted = [choice(state, JobState, "states") for state in texts(states, "states")]
        users, teams = [user] if user else [], [team] if team else []
        found = self._backend.listing(wanted, users, teams, check_limit(limit)).jobs
        return Table([SubmittedJob(self._backend, job.id) for job in found], found, JOB_COLUMNS)

    def offers(
        self,
        gpu: str | Sequence[str] = (),
        *,
        provider: str | Sequence[str] = (),
        region: str | Sequence[str] = (),
        spot: bool | None = None,
        available: bool = False,
        max_price: object = None,
        limit: int | None = None,
    ) -> Table[OfferResult]:
        """The known offers: first those where jobs can start, cheapest GPU-hour first. ``gpu``: such as ``H100`` or
        ``H100:8``; ``provider``, ``region``: names or patterns (``us-*``); ``spot``: only spot, or none;
        ``max_price``: USD per GPU-hour. `gpubroker prices poll` refreshes them. Raises `UnknownName`."""
        others = [kind.value for kind in CapacityType if kind is not CapacityType.SPOT]
        kinds = [] if spot is None else [CapacityType.SPOT.value] if spot else others
        places = {"provider": texts(provider, "provider"), "region": texts(region, "region")}
        price = None if max_price is None else money(max_price, "max_price")
        wanted = OfferFilter.of(
            {"gpu": texts(gpu, "gpu"), **places, "capacity_type": kinds}, available=available, max_price=price
        )
        found = self._backend.offers(wanted, check_limit(limit)).offers
        return Table(found, found, OFFER_COLUMNS)

    def approvals(self, *, decided: bool = False) -> Table[ApprovalRequest]:
        """The requests for approval, oldest first; ``decided``: also those that were decided."""
        found = self._backend.approvals(decided=decided).requests
        return Table(found, found, APPROVAL_COLUMNS)

    def grant(self, job: str | SubmittedJob[Any], reason: str = "") -> None:
        """Approve the request of a waiting job. Raises `NotAllowed` if there is none, or it is not yours to decide."""
        self._backend.decide(self._id(job), "grant", reason)

    def refuse(self, job: str | SubmittedJob[Any], reason: str = "") -> None:
        """Refuse the request of a waiting job. Raises as `grant`."""
        self._backend.decide(self._id(job), "refuse", reason)

    def _id(self, job: str | SubmittedJob[Any]) -> str:
        return job.id if isinstance(job, SubmittedJob) else self._backend.find(text(job, "job"))


def _collect(values: object) -> list[Any]:
    """The values of an argument. Raises `InvalidInput` for one that has no end, or is a single value."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise InvalidInput(f"expected values; got {values!r:.60}", where="map", hint="such as map(train, [1e-3, 1e-4])")
    listed = list(islice(values, _MAX_CALLS + 1))
    if len(listed) > _MAX_CALLS:
        raise InvalidInput(f"more than {_MAX_CALLS:,} values", where="map", hint="submit them in parts")
    return listed
