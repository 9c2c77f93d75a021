"""The decisions on record."""

from broker.app.wiring import Broker
from broker.core.policy.decisions import Decision


def decisions_about(broker: Broker, job_id: str) -> list[Decision]:
    with broker.store.reading() as look:
        return list(reversed(look.decisions(job_id=job_id)))
