"""One of several processes that submit jobs against one budget: a program of its own, started by the tests.

Reads lines ``NAME DOLLARS PART`` and answers each with one JSON document: the job's id, or the refusal's exit code.
Where a part is given the job is ended at once, as a reconciler ends it: that part of its hold is settled, the rest
released.
"""

import json
import sys
import time
from pathlib import Path

from broker.app.jobs.submit import submit
from broker.app.wiring import Broker
from broker.core.errors import NotAllowed
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.market.offers import MoneyKind
from broker.ledger.entries import Movement, balances, move
from broker.reconciler.settlement.settlement import release, tags_of
from broker.settings import Settings
from cli import registries
from tests.actors import ANN, EVERYBODYS


def job_text(name: str, dollars: str) -> str:
    """A job on the simulated market that may cost so much and no more."""
    return (
        f"name: {name}\nrun: 'true'\nresources: {{accelerators: 'L4:1'}}\nmax_cost: ${dollars}\n"
        "constraints: {providers: [sandbox]}\n"
    )


def end(broker: Broker, view: JobView, part: float) -> None:
    """Settle a part of what the job holds, and release the rest; once."""
    now = broker.clock.now()
    with broker.store.writing() as tx:
        held = balances(tx.entries(view.id))[MoneyKind.SANDBOX].held
        if not held:
            return
        tx.post(
            move(
                Movement.SETTLE,
                held.scaled(part),
                movement_id=f"{view.id}/1/settle/0",
                money=MoneyKind.SANDBOX,
                at=now,
                covers=(now, now),
                tags=tags_of(view),
            )
        )
        tx.post(release(view, tx.sums([view.id])[view.id], now))


def outcome(broker: Broker, name: str, dollars: str, part: str) -> dict[str, object]:
    """Submit it, unless it is there already: one that is asked for again after a crash."""
    with broker.store.reading() as look:
        view = next(iter(look.jobs(name=name)), None)
    began, again = time.monotonic(), view is not None
    if view is None:
        job = parse_job(job_text(name, dollars), file="job.yaml", now=broker.clock.now())
        try:
            view = submit(broker, job, by=ANN)
        except NotAllowed as error:
            return {"name": name, "refused": error.exit_code, "seconds": time.monotonic() - began}
    seconds = time.monotonic() - began
    if part != "-":
        end(broker, view, float(part))
    return {"name": name, "job": view.id, "again": again, "seconds": seconds}


def main(home: str, store: str) -> None:
    broker = Broker(
        Settings(home=Path(home), store=store, runs=(Path(home) / "runs").as_uri()), registries(), EVERYBODYS
    )
    broker.store.count_offers()
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(outcome(broker, *line.split())), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
