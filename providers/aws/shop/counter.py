"""Shared by the products of AWS: the login, the regions, the time, and reading of orders."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from broker.core.errors import Malformed, OutcomeUnknown, Refused
from broker.core.market.offers import CapacityType, Offer
from broker.core.purchases.quotes import Order, QuoteRequest
from broker.core.values.clock import Clock
from broker.core.values.money import Money
from providers.aws import price_list
from providers.aws.login import AwsLogin
from providers.aws.machines import accelerated_types, is_listed, machine
from providers.aws.settings import PURCHASE_TAG, AwsSettings

LINUX = "Linux/UNIX"
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Everywhere(Protocol):
    """Queries each region with the login; a failure in one region does not stop the others."""

    def __call__(
        self, fetch: Callable[[AwsLogin, str], Iterator[T]], regions: tuple[str, ...] | None = None
    ) -> Iterator[T]: ...


@dataclass(frozen=True, slots=True)
class AwsCounter:
    """``login`` raises `NoLogin` without one; ``everywhere`` queries the given regions, or all of the settings."""

    login: Callable[[], AwsLogin]
    everywhere: Everywhere
    settings: AwsSettings
    clock: Clock

    def now(self) -> datetime:
        """The time in whole seconds, as AWS keeps it (UTC)."""
        return self.clock.now().replace(microsecond=0)


def matching_types(request: QuoteRequest) -> Sequence[str]:
    if request.instance_type is not None:
        return (request.instance_type,)
    requested = (request.accelerator, request.count)
    shapes = {name: machine(name) for name in accelerated_types() if is_listed(name)}
    return [name for name, shape in shapes.items() if (shape.accelerator, shape.count) == requested]


def requested_regions(request: QuoteRequest) -> tuple[str, ...] | None:
    """The region asked for, or None for all."""
    return None if request.region is None else (request.region,)


def on_demand_price(counter: AwsCounter, login: AwsLogin, region: str, instance_type: str) -> Money | None:
    """USD per machine and hour on demand, by the price API; None if AWS lists none. Raises what `AwsLogin.rows`
    raises."""
    rows = price_list.product_rows(login, counter.settings.pricing_region, instance_type)
    rates = price_list.read_products(rows, (region,), counter.clock.now())
    on_demand = [offer for offer in rates if isinstance(offer, Offer) and offer.capacity_type is CapacityType.ON_DEMAND]
    return min((offer.price for offer in on_demand if offer.price is not None), default=None)


def dry_run(login: AwsLogin, region: str, operation: str, parameters: Mapping[str, Any]) -> None:
    """Let EC2 check permission and parameters; changes nothing. Raises what `AwsLogin.call` raises."""
    try:
        login.call("ec2", region, operation, **parameters, DryRun=True)
    except Refused as error:
        if error.code != "DryRunOperation":
            raise


def read_answer(parse: Callable[[Any], Order], row: Any) -> Order:
    """The order in the answer of a call that bought something. Raises `OutcomeUnknown` if it cannot be read."""
    try:
        return parse(row)
    except Malformed as error:
        raise OutcomeUnknown(error.message, where=error.where) from error


def purchase_tags(key: str, resource: str) -> list[dict[str, Any]]:
    """EC2's tag of a purchase."""
    return [{"ResourceType": resource, "Tags": [{"Key": PURCHASE_TAG, "Value": key}]}]


def has_purchase_tag(row: Mapping[str, Any], key: str) -> bool:
    """Whether EC2's row has the tag of the purchase."""
    return any(tag.get("Key") == PURCHASE_TAG and tag.get("Value") == key for tag in row.get("Tags") or ())
