"""Damages each adapter's answers on purpose and prints what came of it, one row an adapter.

python -m tests.market.mutations [--mutants 500] [--seed N] [--only NAME] [--show]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module

from tests.fakes.mutate import MutationTally, MutationTarget, tally_mutants

Opens = Callable[[], AbstractContextManager[MutationTarget]]


def _json(module: str, *arguments: str) -> Opens:
    """The answers that the adapter's own tests damage."""
    return lambda: import_module(f"tests.providers.{module}").answers(*arguments).target()


def _other(module: str, *arguments: str) -> Opens:
    return lambda: import_module(f"tests.providers.{module}").target(*arguments)


_TAIL = ("cloudrift", "crusoe", "daytona", "digitalocean", "hotaisle", "jarvislabs", "lium", "seeweb", "vultr")
ADAPTERS: dict[str, Opens] = {
    "aws: price list": _other("aws.test_fuzz"),
    "aws: savings plan list": _other("aws.test_fuzz", "plans"),
    "aws: spot prices": _other("aws.test_fuzz_api", "spot"),
    "aws: GetProducts": _other("aws.test_fuzz_api", "products"),
    "azure: retail prices": _json("azure.test_retail"),
    "gcp: SKUs": _other("gcp.test_fuzz", "skus"),
    "gcp: machine types": _other("gcp.test_fuzz", "machines"),
    "gcp: accelerators": _other("gcp.test_fuzz", "accelerators"),
    **{f"gpuhunt: {cloud}": _json("test_gpuhunt_tail", cloud) for cloud in _TAIL},
    "hyperstack: flavors": _json("test_hyperstack"),
    "hyperstack: price book": lambda: import_module("tests.providers.test_hyperstack").prices().target(),
    "lambda_cloud": _json("test_lambda_cloud"),
    **{f"nebius: {part}": _other("test_nebius", part) for part in ("platforms", "estimates")},
    **{f"oci: {what}": _json("test_oci", what) for what in ("shapes", "products", "prices")},
    "ovh": _json("test_ovh"),
    "prime_intellect": _json("test_prime_intellect"),
    "runpod": _json("test_runpod"),
    "runpod: data centres": _json("test_runpod", "places"),
    "runpod: list of places": _json("test_runpod", "data centers"),
    "scaleway": _json("test_scaleway"),
    "sfcompute": _json("test_sfcompute"),
    "shadeform": _json("test_shadeform"),
    "vast": _json("test_vast"),
    "verda": _json("test_verda"),
    "vultr": _json("test_vultr"),
}


def row(name: str, tally: MutationTally) -> str:
    return (
        f"{name:24}{tally.mutants:>9,}{tally.readable:>10,}{tally.offers:>9,}"
        f"{len(tally.crashes):>9}{len(tally.wrong):>14}{len(tally.untold):>14}"
    )


HEAD = (
    f"{'adapter':24}{'mutants':>9}{'readable':>10}{'offers':>9}{'crashes':>9}{'wrong prices':>14}{'untold drops':>14}"
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.market.mutations", description=__doc__)
    parser.add_argument("--mutants", type=int, default=500, help="of each adapter's answers (default: 500)")
    parser.add_argument("--seed", type=int, default=20261125)
    parser.add_argument("--only", default="", help="only adapters whose name contains this")
    parser.add_argument("--show", action="store_true", help="print each fault, too")
    asked = parser.parse_args()
    print(HEAD)
    faults = 0
    for name, opens in ADAPTERS.items():
        if asked.only not in name:
            continue
        with opens() as target:
            tally = tally_mutants(target, mutants=asked.mutants, seed=asked.seed)
        print(row(name, tally), flush=True)
        faults += len(tally.faults)
        if asked.show:
            print(*(f"    {fault}" for fault in tally.faults), sep="\n")
    print(f"{faults} faults (seed {asked.seed})")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
