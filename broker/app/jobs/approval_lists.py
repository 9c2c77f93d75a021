"""Requests for approval, standing grants, and purchases that wait for approval, as one result."""

from __future__ import annotations

from collections.abc import Collection

from broker.app.alerts import approvers
from broker.app.jobs import approvals
from broker.app.results.approvals import ApprovalList, ApprovalRequest, StandingGrantResult
from broker.app.results.purchases import PurchaseResult
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.policy.approvals import StandingGrant
from broker.core.purchases.purchases import PurchaseState


def approval_list(
    broker: Broker,
    *,
    by: Actor,
    decided: bool = False,
    mine: bool = False,
    teams: Collection[str] | None = None,
) -> ApprovalList:
    """Open requests, the oldest first, valid standing grants, and purchases that wait for approval. ``decided``: also
    decided requests and ended grants. ``mine``: only requests and purchases that ``by`` may decide. ``teams``: only of
    their jobs and purchases, and only grants for these teams alone, for ``by``, or by ``by``; None: all."""
    found = approvals.requests(broker, all_of_them=decided, teams=teams)
    waiting = [one.view for one in found if one.state is approvals.ApprovalState.WAITING]
    told, now = approvers.told_of(broker, waiting), broker.clock.now()
    requests = [ApprovalRequest.of(one, told.get(one.view.id, ()), by=by) for one in found]
    return ApprovalList(
        requests=[one for one in requests if one.mine or not mine],
        standing=[
            StandingGrantResult.of(one, now)
            for one in approvals.standing_grants(broker, all_of_them=decided)
            if teams is None or _concerns(one, by.identity, teams)
        ],
        purchases=[
            PurchaseResult.of(one)
            for one in broker.store.purchases()
            if one.state is PurchaseState.ASKING
            and (teams is None or one.team in teams)
            and (one.may_approve(by.identity) or not mine)
        ],
    )


def _concerns(grant: StandingGrant, name: str, teams: Collection[str]) -> bool:
    return name == grant.by or name in grant.users or bool(grant.teams and set(grant.teams) <= set(teams))
