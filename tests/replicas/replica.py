"""One process of a test with several: a program of its own. ``reconcile`` looks after a share of the jobs as `gpubroker
serve` does, until it is told to stop; ``submit`` submits jobs by the names that it reads."""

from __future__ import annotations

import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from broker.app.jobs.submit import submit
from broker.app.service import reconciler_setup
from broker.app.service.duties import Reconciling
from broker.app.service.health import Pulses
from broker.app.wiring import Broker
from broker.core.errors import NotAllowed
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.settings import ServeSettings, Settings
from cli import registries
from tests.actors import ANN, EVERYBODYS
from tests.replicas.shared_cloud import ENGINE

AGAIN = 0.5  # seconds after a refusal
# A round looks at every open job: submissions far ahead of what has ended would be timed, not the replicas.
MOST_OPEN, LOOK_AFTER = 120, 10
ENOUGH = "enough"  # the file that tells those who submit to stop
JOB = "name: {name}\nrun: 'true'\nresources: {{accelerators: 'L4:1'}}\nwork: 2s\nmax_duration: 1h\nmax_cost: $0.50\n"


def broker_of(home: Path, url: str, *, alone: bool = False) -> Broker:
    """A broker of this process. ``alone``: only one process looks after jobs."""
    known = registries()
    engines = {**known.engines, ENGINE: "tests.replicas.shared_cloud:make"}
    settings = Settings(
        home=home,
        store=url,
        runs=(home / "runs").as_uri(),
        reconcile_every=0.2,
        serve=ServeSettings(share_jobs=not alone),
    )
    return Broker(settings, replace(known, engines=engines, local_providers=()), EVERYBODYS)


def reconcile(broker: Broker) -> None:
    cloud = broker.engine(ENGINE)
    patch.object(reconciler_setup, "run_folders", lambda broker: cloud).start()  # it has the run folders as well
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def say(*lines: str) -> None:
        print(*lines, flush=True)

    Reconciling(broker, health=Pulses(), say=say).run(stop)


def submit_named(broker: Broker) -> None:
    for number, line in enumerate(sys.stdin):
        while number % LOOK_AFTER == 0 and _open(broker) > MOST_OPEN:
            broker.clock.sleep(AGAIN)  # real replicas end jobs meanwhile
        if (broker.settings.home / ENOUGH).exists():
            return
        job = parse_job(JOB.format(name=line.strip()), file="job.yaml", now=broker.clock.now())
        while not _submitted(broker, job):
            broker.clock.sleep(AGAIN)  # until another job has ended


def _open(broker: Broker) -> int:
    with broker.store.reading() as look:
        return len(look.last_events())


def _submitted(broker: Broker, job: Job) -> bool:
    try:
        print(submit(broker, job, by=ANN).id, flush=True)
    except NotAllowed:
        print("refused", flush=True)
        return False
    return True


def main(what: str, home: str, url: str) -> None:
    broker = broker_of(Path(home), url, alone=what == "reconcile-alone")
    if what.startswith("submit"):
        submit_named(broker)
    else:
        reconcile(broker)


if __name__ == "__main__":
    main(*sys.argv[1:])
