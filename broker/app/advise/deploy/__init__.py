"""The steps of a deployment: demand, supply and budget, model, hardware, own or rent, parallelism, and the last steps
of every deployment."""

from dataclasses import replace

from broker.app.advise.deploy.serving import serve
from broker.app.advise.deploy.situation import DeployAdvice, DeployDemand
from broker.app.advise.deploy.train import train
from broker.app.advise.prices import CurrentPrices
from broker.core.errors import InvalidInput
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.kinds import Goal, Method

_CONTEXT = 4096  # tokens of a sequence


def deploy(situation: DeployDemand, prices: CurrentPrices, assumptions: Assumptions = DEFAULTS) -> DeployAdvice:
    """The advice for a situation at these prices. Pure. Raises InvalidInput if no accelerator with a price holds the
    model."""
    if situation.goal is not Goal.SERVE and situation.method is Method.INFERENCE:
        raise InvalidInput(f"method: inference does not train, and the goal is to {situation.goal}")
    hours, context = assumptions.hours_per_day or 24.0, assumptions.context or _CONTEXT
    assumptions = replace(assumptions, hours_per_day=hours, context=context)
    return (
        serve(situation, prices, assumptions) if situation.goal is Goal.SERVE else train(situation, prices, assumptions)
    )
