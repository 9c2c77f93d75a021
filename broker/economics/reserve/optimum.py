"""The minimum cost of a known demand: a linear programme, solved by HiGHS through SciPy.

With r units bought, a held and o rented on demand in each hour t of T::

    minimise   Σ fee(t) · r(t) + Σ o(t)
    subject to a(t) = a(t − 1) + r(t) − r(t − term),   a(t) + o(t) ≥ demand(t),   r, a, o ≥ 0

The matrix is a network's, so whole demand has a whole optimum, and no rule can cost less.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from broker.core.errors import GiveUp, InvalidInput, MissingExtra
from broker.economics.reserve.replay import PurchaseOutcome, ReserveTerms, charge, checked


def optimum(demand: Sequence[float], terms: ReserveTerms) -> PurchaseOutcome:
    """The cheapest purchases for a ``demand`` of whole units, all hours of which count. Raises `MissingExtra` without
    SciPy, and InvalidInput for fractions, for which the programme would buy fractions of units."""
    checked(demand)
    if any(wanted % 1 for wanted in demand):
        raise InvalidInput("the optimum is for whole units of demand", hint="round the demand")
    if find_spec("scipy") is None:
        raise MissingExtra("backtest", "the optimum")
    import numpy as np
    from scipy import sparse
    from scipy.optimize import linprog

    hours = len(demand)
    identity = sparse.identity(hours, format="csr")
    nothing = sparse.csr_matrix((hours, hours))
    before = sparse.eye(hours, k=-1, format="csr")
    lapsed = sparse.eye(hours, k=-terms.term, format="csr") if terms.term < hours else nothing
    solved = linprog(
        np.concatenate([[terms.fee(hour, hours) for hour in range(hours)], np.zeros(hours), np.ones(hours)]),
        A_eq=sparse.hstack([lapsed - identity, identity - before, nothing], format="csc"),
        b_eq=np.zeros(hours),
        A_ub=sparse.hstack([nothing, -identity, -identity], format="csc"),
        b_ub=-np.asarray(demand, dtype=float),
        method="highs-ds",  # the simplex ends in a corner, where units are whole
    )
    if solved.status != 0:
        raise GiveUp(f"the optimum could not be computed: {solved.message}")
    units = np.rint(solved.x[:hours]).astype(int)
    return charge([(int(hour), int(units[hour])) for hour in np.nonzero(units)[0]], demand, terms)
