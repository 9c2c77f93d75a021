"""A small company behind a server: two teams, somebody in each role, jobs of both teams and of none."""

from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import ASGIApp

from broker.app.access import people, sessions, tokens
from broker.app.jobs import submit
from broker.app.service.health import Pulses
from broker.app.service.metrics import ServiceResponder
from broker.app.wiring import Broker
from broker.core.access.people import TeamRole, TokenScope
from broker.core.access.sessions import LINK_PATH
from broker.core.actors import Actor, Role
from broker.core.job.file import parse_job
from broker.core.values.clock import Clock
from broker.server.api.application import Envelope, api
from broker.server.api.limits import WrongTokens
from broker.server.api.transport import Transport
from broker.settings import ServeSettings, Settings
from cli import registries
from tests.actors import EVERYBODYS, ROOT
from tests.empty_store import empty_store

POLICY = """\
version: 1
policy: test
budgets:
  - {name: nlp, amount: $100, period: month, scope: {team: [nlp]}, counts: [sandbox]}
  - {name: vision, amount: $100, period: month, scope: {team: [vision]}, counts: [sandbox]}
  - {name: both, amount: $100, period: month, scope: {team: [nlp, vision]}, counts: [sandbox]}
  - {name: all, amount: $100, period: month, counts: [sandbox]}
guardrails:
  - {name: big, approve_above: {cost: $4, approvers: [apple, adam, mia], expires: 6h}}
"""
JOB = """\
name: {name}
{team}
resources: {{accelerators: "L4:1"}}
constraints: {{providers: [sandbox]}}
run: echo hello
work: 30m
max_duration: {most}
checkpoint: {{every: 5m, size: 1MB, restart: 2m}}
"""
# Who is what: in nlp, the team of the jobs that the tests are about, or over everything.
IN_TEAM = {
    "vic": TeamRole.VIEWER,
    "mia": TeamRole.MEMBER,
    "apple": TeamRole.APPROVER,
    "tara": TeamRole.TEAM_ADMINISTRATOR,
}
OVER_ALL = {"fay": Role.FINOPS, "adam": Role.ADMINISTRATOR}
STRANGER = "otto"  # of vision alone, its administrator
NOBODY = "nora"  # on record without a role
BOTH = "finn"  # finops, and of vision an administrator: sees nlp's money, and may do more elsewhere alone
EVERYBODY = (*IN_TEAM, *OVER_ALL, STRANGER, NOBODY, BOTH)
DAY = timedelta(days=1)
ALL_SCOPES = tuple(TokenScope)


@dataclass(frozen=True)
class Company:
    """``mine``: a job of mia in nlp, ``asking``: one that waits for approval, ``foreign``: one of otto in vision,
    ``nobodys``: one without a team; their ids."""

    broker: Broker
    wrong: WrongTokens
    mine: str
    asking: str
    foreign: str
    nobodys: str
    usuals: dict[str, str] = field(default_factory=dict)

    @cached_property
    def app(self) -> FastAPI:
        return api(self.broker, ServiceResponder(self.broker, Pulses(), None), self.wrong, Transport())

    @cached_property
    def client(self) -> TestClient:
        return client_of(Envelope(self.app))

    def token(self, person: str, *scopes: TokenScope, expires: timedelta = DAY) -> str:
        return tokens.create(self.broker, person, "", scopes or ALL_SCOPES, expires, by=ROOT).text

    def link(self, person: str) -> str:
        """The path of a link by which somebody signs in at the page, once."""
        return f"{LINK_PATH}/{sessions.invite(self.broker, person, by=ROOT).secret}"

    def usual(self, person: str) -> str:
        """The token that somebody has for everything; making one for each request would take most of the time."""
        if person not in self.usuals:
            self.usuals[person] = self.token(person, expires=80 * DAY)
        return self.usuals[person]

    def get(self, path: str, by: str, **parameters: Any) -> Any:
        """What somebody with a good token is answered."""
        return self.client.get(f"/api/v1{path}", params=parameters, headers=bearer(self.usual(by)))


def client_of(application: ASGIApp, **options: Any) -> TestClient:
    """A client of an application in this process, which answers faults as a server does."""
    client = TestClient(application, **{"raise_server_exceptions": False, **options})
    client.portal = _event_loop()
    return client


@cache
def _event_loop() -> BlockingPortal:
    """One for all requests of a process of tests: a client by itself starts one for each, and threads, which takes as
    long as the answer."""
    opened: Future[BlockingPortal] = Future()

    async def answer() -> None:
        async with BlockingPortal() as portal:
            opened.set_result(portal)
            await portal.sleep_until_stopped()

    Thread(target=anyio.run, args=(answer,), daemon=True).start()
    return opened.result()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def broker_over(store: str, folder: Path, clock: Clock | None = None) -> Broker:
    serve = ServeSettings(jobs_here=True)  # the sandbox runs its jobs on this machine
    settings = Settings(home=folder, store=store, runs=(folder / "runs").as_uri(), serve=serve)
    return Broker(settings, registries(), EVERYBODYS, clock=clock)


def new_broker(folder: Path, store: str = "") -> Broker:
    """A broker with everybody on record and the policy in force. ``store``: an empty one, else SQLite."""
    broker = broker_over(store or empty_store(folder / "store.db"), folder)
    people.add(broker, "adam", by=ROOT, administrator=True)
    for name in EVERYBODY:
        if name != "adam":
            people.add(broker, name, by=ROOT)
    for name, role in IN_TEAM.items():
        people.give_role(broker, name, role, "nlp", by=ROOT)
    people.give_role(broker, "fay", Role.FINOPS, by=ROOT)
    people.give_role(broker, BOTH, Role.FINOPS, by=ROOT)
    for name in (STRANGER, BOTH):
        people.give_role(broker, name, TeamRole.TEAM_ADMINISTRATOR, "vision", by=ROOT)
    broker.store.activate_policy({"test.yaml": POLICY}, by="adam")
    return broker


def submitted(broker: Broker, name: str, user: str, team: str | None, most: str = "2h") -> str:
    """A job in the sandbox; its id. One of six hours waits for approval."""
    text = JOB.format(name=name, team=f"team: {team}" if team else "", most=most)
    job = parse_job(text, file=f"{name}.yaml", now=broker.clock.now())
    return submit.submit(broker, job, by=Actor(user)).id


@cache
def _filled() -> tuple[bytes, tuple[str, str, str, str]]:
    """A store with everybody and the jobs in it, and their ids, as in `Company`. Made once a process of tests."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        broker = new_broker(folder)
        ids = _with_jobs(broker)
        broker.close()
        return (folder / "store.db").read_bytes(), ids


def _with_jobs(broker: Broker) -> tuple[str, str, str, str]:
    return (
        submitted(broker, "mine", "mia", "nlp"),
        submitted(broker, "asking", "mia", "nlp", most="6h"),
        submitted(broker, "foreign", STRANGER, "vision"),
        submitted(broker, "nobodys", "mia", None),
    )


def world_over(store: str, folder: Path) -> Company:
    """The same company over an empty store of any database."""
    broker = new_broker(folder, store)
    return Company(broker, WrongTokens(), *_with_jobs(broker))


def new_world(folder: Path, clock: Clock | None = None) -> Company:
    content, ids = _filled()
    (folder / "store.db").write_bytes(content)
    broker = broker_over(f"sqlite:///{folder / 'store.db'}", folder, clock)
    broker.store.set_setting("runs", broker.settings.runs_url)  # no job has a run folder yet
    return Company(broker, WrongTokens(), *ids)
