"""Damaged answers of each adapter: no crash, no price out of this world, and no harm to other rows. Seeded."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import pytest

from providers.registry import PROVIDERS
from tests.counts import part
from tests.fakes.mutate import MutationTarget, check_tally, tally_mutants
from tests.providers.test_registry import WITHOUT_NETWORK, WITHOUT_NETWORK_AND_ROWS

Opens = Callable[[], AbstractContextManager[MutationTarget]]


def _json(module: str, *arguments: str) -> Opens:
    """The answers that the adapter's own tests damage."""
    return lambda: import_module(f"tests.providers.{module}").answers(*arguments).target()


def _other(module: str, *arguments: str) -> Opens:
    return lambda: import_module(f"tests.providers.{module}").target(*arguments)


ADAPTERS: dict[str, Opens] = {
    "aws: price list": _other("aws.test_fuzz"),
    "aws: spot prices": _other("aws.test_fuzz_api", "spot"),
    "aws: GetProducts": _other("aws.test_fuzz_api", "products"),
    "azure: retail prices": _json("azure.test_retail"),
    "gcp: SKUs": _other("gcp.test_fuzz", "skus"),
    "gcp: machine types": _other("gcp.test_fuzz", "machines"),
    "gcp: accelerators": _other("gcp.test_fuzz", "accelerators"),
    "hyperstack: flavors": _json("test_hyperstack"),
    "hyperstack: price book": lambda: import_module("tests.providers.test_hyperstack").prices().target(),
    "lambda": _json("test_lambda_cloud"),
    **{f"nebius: {part}": _other("test_nebius", part) for part in ("platforms", "estimates")},
    **{f"oci: {what}": _json("test_oci", what) for what in ("shapes", "products", "prices")},
    "ovh": _json("test_ovh"),
    "prime_intellect": _json("test_prime_intellect"),
    "runpod": _json("test_runpod"),
    "scaleway": _json("test_scaleway"),
    "sfcompute": _json("test_sfcompute"),
    "shadeform": _json("test_shadeform"),
    "vast": _json("test_vast"),
    "verda": _json("test_verda"),
    "vultr": _json("test_vultr"),
}


# Few of each adapter in every run; many of a quarter of them on each day.
MUTANTS: list[Any] = [(name, 3) for name in ADAPTERS]
MUTANTS += [pytest.param(name, 80, marks=pytest.mark.system) for name in [*ADAPTERS][part(4) :: 4]]


@pytest.mark.parametrize(("adapter", "mutants"), MUTANTS)
def test_damaged_answers_harm_nothing_but_the_damaged_row(adapter: str, mutants: int) -> None:
    with ADAPTERS[adapter]() as target:
        check_tally(tally_mutants(target, mutants=mutants, seed=20261125))


def test_every_adapter_is_damaged() -> None:
    others = {"gpuhunt", *WITHOUT_NETWORK, *WITHOUT_NETWORK_AND_ROWS}  # gpuhunt reads an answer as a whole
    assert {name.partition(":")[0] for name in ADAPTERS} == {*PROVIDERS} - others
