"""Use cases: back up the store while jobs run, and restore it.

A restored store has no record of what happened after its copy was made. Jobs that were open then continue: their
machines are found again by the names of their attempts. Machines and purchases that it does not contain are found by
`gpubroker doctor --sweep` and `gpubroker capacity list --check`.
"""

from contextlib import ExitStack
from pathlib import Path

from broker.app.access.people import log
from broker.app.jobs.background import step_down
from broker.app.service.documents import RestoredStoreResult
from broker.app.store_identity import signing_key, store_id
from broker.app.wiring import Broker
from broker.core.access.api_tokens import AuditRecord
from broker.core.actors import Actor
from broker.core.errors import NotAllowed
from broker.store.engine.copies import StoreCopy
from broker.store.engine.leader import LeaderRole

_MAX_TRIES, _PAUSE = 60, 0.5  # half a minute for a reconciler to end its pass


def back_up_store(broker: Broker, file: Path, *, by: Actor) -> StoreCopy:
    """Copy the store into a new private file. Jobs continue meanwhile. The copy contains the key that signs orders to
    nodes: protect it like the store itself. Raises as `Store.copy_to`."""
    # Without them the copy would have the identity of another store, to which the machines do not belong.
    store_id(broker.store)
    signing_key(broker.store)
    store_copy = broker.store.copy_to(file)
    log(broker, AuditRecord.by(by, broker.clock.now(), "store.back_up", str(file)))
    return store_copy


def restore_store(broker: Broker, file: Path, *, by: Actor) -> RestoredStoreResult:
    """Replace the store by a copy; first a copy of the present store is kept next to it.

    A background reconciler is asked to end first. Raises `NotAllowed` while `gpubroker serve` runs, and as
    `Store.copy_to` and `Store.put_back`.
    """
    now = broker.clock.now()
    with ExitStack() as lead_stack:
        for duty in (LeaderRole.JOBS, LeaderRole.PURCHASES):
            _take_lead(broker, duty, lead_stack)
        store_path = Path(broker.store.where)
        previous = broker.store.copy_to(store_path.with_name(f"{store_path.name}.before-{now:%Y%m%dT%H%M%S.%f}"))
        restored = broker.store.restore_from(file)
        log(broker, AuditRecord.by(by, now, "store.restore", str(file), before=str(previous.path)))
    return RestoredStoreResult(restored=restored, previous=previous)


def _take_lead(broker: Broker, duty: LeaderRole, lead_stack: ExitStack) -> None:
    for attempt in range(_MAX_TRIES):
        if lead_stack.enter_context(broker.store.lead(duty)) is not None:
            return
        if not attempt:
            step_down(broker)
        broker.clock.sleep(_PAUSE)  # another process may still be ending its pass
    raise NotAllowed(
        "a broker runs on this store, and would continue with outdated records",
        where=broker.store.where,
        hint="stop `gpubroker serve` first",
    )
