"""The steps of a deployment: demand, supply and budget, model, hardware, own or rent, parallelism, and the last steps
of every deployment."""

from __future__ import annotations

from broker.app.advise.deploy.serving import serve
from broker.app.advise.deploy.situation import DeployDemand, Deployment
from broker.app.advise.deploy.train import train
from broker.app.advise.prices import CurrentPrices
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.kinds import Goal


def deploy(situation: DeployDemand, prices: CurrentPrices, rules: Assumptions = DEFAULTS) -> Deployment:
    """The advice for a situation at these prices. Pure. Raises InvalidInput if no accelerator with a price holds the
    model."""
    return serve(situation, prices, rules) if situation.goal is Goal.SERVE else train(situation, prices, rules)
