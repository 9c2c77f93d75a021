"""Parses a request for capacity quotes."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AwareDatetime, Field

from broker.core.errors import InvalidInput, UnknownName
from broker.core.market.accelerators import canonical
from broker.core.purchases.quotes import PurchaseProduct, QuoteRequest
from broker.core.values.units import parse_term, split_machine

Text = Annotated[str, Field(max_length=200)]


@dataclass(frozen=True)
class CapacityRequest:
    """A request in the words of people. Times are UTC."""

    machine: Annotated[Text, Field(description="`H100:8`, or an instance type.")]
    machines: Annotated[int, Field(ge=1, le=10_000)] = 1
    length: Annotated[Text, Field(description="`48h`, `7d`, `1y`.")] = "1d"
    region: Text | None = None
    earliest: AwareDatetime | None = None
    latest: AwareDatetime | None = None
    products: Annotated[
        Sequence[Text], Field(max_length=20, description="Kinds, `all` for all. Default: capacity_block.")
    ] = ()

    def request(self) -> QuoteRequest:
        """The request. Raises `InvalidInput` and `UnknownName`."""
        instance_type, accelerator, count = parse_machine(self.machine)
        try:
            length = parse_term(self.length)
        except ValueError as error:
            raise InvalidInput(str(error), where="length", hint="48h, 7d, 1y") from error
        return QuoteRequest(
            machines=self.machines,
            instance_type=instance_type,
            accelerator=accelerator,
            count=count,
            length=length,
            region=self.region or None,
            earliest=self.earliest,
            latest=self.latest,
            products=parse_products(self.products),
        )


def parse_machine(machine: str) -> tuple[str | None, str | None, int]:
    """Instance type, or accelerator and count. An instance type has no colon, and a dot, a dash or an underscore.
    Raises `InvalidInput`."""
    if ":" not in machine and (re.search(r"[._]", machine) or re.fullmatch(r"[a-z]\w*(-\w+)+|h\d+\w+", machine)):
        return machine, None, 0
    try:
        name, count = split_machine(machine)
    except ValueError as error:
        raise InvalidInput(str(error), where="GPU:COUNT") from error
    return None, canonical(name), count


def parse_products(product_names: Iterable[str]) -> tuple[PurchaseProduct, ...]:
    """The kinds of product of these names, written with ``-`` or ``_``; none: capacity blocks. Raises `UnknownName`."""
    names = [name.replace("-", "_") for name in product_names] or [PurchaseProduct.CAPACITY_BLOCK.value]
    if "all" in names:
        return tuple(PurchaseProduct)
    products_by_name = {product.value: product for product in PurchaseProduct}
    for name in names:
        if name not in products_by_name:
            raise UnknownName("product", name, [*products_by_name, "all"])
    return tuple(dict.fromkeys(products_by_name[name] for name in names))
