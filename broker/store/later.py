"""Modules of the store that most commands do not need: ``later.month_runs`` is imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers; one line each, since only a name imported `as` itself is re-exported
    from broker.store import outbox as outbox
    from broker.store import proof as proof
    from broker.store.access import access as access
    from broker.store.engine import compaction as compaction
    from broker.store.engine import copies as copies
    from broker.store.engine import job_shares as job_shares
    from broker.store.engine import rehearsal as rehearsal
    from broker.store.ledger import anomalies as anomalies
    from broker.store.ledger import billing_months as billing_months
    from broker.store.ledger import budget_marks as budget_marks
    from broker.store.ledger import charges as charges
    from broker.store.ledger import month_runs as month_runs
    from broker.store.ledger import month_use as month_use
    from broker.store.ledger import use_sums as use_sums
    from broker.store.market import acceptances as acceptances
    from broker.store.market import holdings as holdings
    from broker.store.market import market as market
    from broker.store.market import market_history as market_history
    from broker.store.market import plan_stamp as plan_stamp
    from broker.store.market import polls as polls
    from broker.store.market import watches as watches
    from broker.store.purchases import purchases as purchases
else:
    _ROOMS = {
        "": "outbox proof",
        ".access": "access",
        ".engine": "compaction copies job_shares rehearsal",
        ".ledger": "anomalies billing_months budget_marks charges month_runs month_use use_sums",
        ".market": "acceptances holdings market market_history plan_stamp polls watches",
        ".purchases": "purchases",
    }
    _PLACES = {name: f"broker.store{room}.{name}" for room, names in _ROOMS.items() for name in names.split()}

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(name)
        globals()[name] = module = import_module(_PLACES[name])
        return module
