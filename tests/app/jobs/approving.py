"""Jobs that need approval, for tests."""

from datetime import timedelta

from broker.app.jobs import jobs
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.submit import submit
from broker.app.service.passes import reconciler
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.reconciler.loop import Tick
from tests.actors import ANN

POLICY = """\
version: 1
policy: t
budgets: [{name: pretend, amount: $100, period: month, counts: [sandbox]}]
guardrails:
  - {name: big, approve_above: {cost: $2, approvers: [bob, carol], expires: 6h}}
"""
JOB = "name: {name}\nrun: 'true'\nresources: {{cpus: 1}}\nmax_duration: 10h\nwork: 2h\nmax_cost: {cost}\n"
SANDBOX = "constraints: {providers: [sandbox]}\n"
MORE = JobLimits(max_cost=Money.usd(5), max_duration=timedelta(hours=48))


def start(broker: Broker, cost: str = "$3", name: str = "big", by: Actor = ANN) -> JobView:
    job = parse_job(JOB.format(name=name, cost=cost) + SANDBOX, file="job.yaml", now=broker.clock.now())
    return submit(broker, job, by=by)


def held(broker: Broker, view: JobView | str) -> Money:
    """Simulated money held for the job, or for that of the id."""
    with broker.store.reading() as look:
        balance = look.balance(view if isinstance(view, str) else view.id).get(MoneyKind.SANDBOX)
    return balance.held if balance else Money.ZERO


def tick(broker: Broker) -> Tick:
    return reconciler(broker).tick()


def now_of(broker: Broker, view: JobView) -> JobView:
    return jobs.find(broker, view.id)


def bodies(broker: Broker, view: JobView) -> list[str]:
    return [event.body.kind for event in jobs.events(broker, view)]
