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
    tracked_requests = approvals.requests(broker, include_decided=decided, teams=teams)
    waiting_views = [entry.view for entry in tracked_requests if entry.state is approvals.ApprovalState.WAITING]
    notices, now = approvers.notices_by_job(broker, waiting_views), broker.clock.now()
    requests = [ApprovalRequest.of(entry, notices.get(entry.view.id, ()), by=by) for entry in tracked_requests]
    return ApprovalList(
        requests=[entry for entry in requests if entry.mine or not mine],
        standing=[
            StandingGrantResult.of(entry, now)
            for entry in approvals.standing_grants(broker, include_ended=decided)
            if teams is None or _concerns(entry, by.identity, teams)
        ],
        purchases=[
            PurchaseResult.of(entry)
            for entry in broker.store.purchases()
            if entry.state is PurchaseState.ASKING
            and (teams is None or entry.team in teams)
            and (entry.may_approve(by.identity) or not mine)
        ],
    )


def _concerns(grant: StandingGrant, name: str, teams: Collection[str]) -> bool:
    return name == grant.by or name in grant.users or bool(grant.teams and set(grant.teams) <= set(teams))
