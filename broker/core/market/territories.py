"""Territories as sets of regions: regions as providers name them, lower case, of which `*` is the only wildcard."""

from __future__ import annotations

from fnmatch import fnmatchcase

# The regions within, and those that are named alike and lie beyond: London, Zurich and Jovanovac lie in regions that
# are called European, and Azure's Brazil US in Brazil.
TERRITORIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "eu": (
        ("eu-*", "eu_*", "europe-*", "*europe", "france*", "germany*", "italy*", "poland*", "spain*", "sweden*",
         "fin-*", "fi-*", "de-*", "fr-*", "nl-*", "es-*", "se-*", "ie-*", "pl-*", "cz-*", "ro-*", "bg-*",
         "austria*", "belgium*", "denmark*"),
        ("eu-west-2", "eu-central-2", "europe-west2", "europe-west6", "*uk*", "*switzerland*", "*norway*", "eu-no-*",
         "eu-is-*", "*-gb-*", "eu-zurich-*", "eu-jovanovac-*"),
    ),
    "us": (
        ("us-*", "us_*", "*us", "*us2", "*us3", "us", "northamerica-us*", "na-us-*"),
        ("*-gov-*", "brazilus"),
    ),
}  # fmt: skip


def lies_in(territory: str, region: str) -> bool:
    """Whether a region (without its provider) is known to lie in a territory."""
    within, beyond = TERRITORIES[territory]
    name = region.lower()
    return any(fnmatchcase(name, one) for one in within) and not any(fnmatchcase(name, one) for one in beyond)


def territory_named(pattern: str) -> str | None:
    """The territory that a pattern of regions names for every provider: ``eu``, ``eu-*``, ``*/europe-*`` name the EU;
    ``aws/eu-*`` and ``eu-west-*`` do not."""
    name = pattern.lower().strip("*/-_")
    return name if name in TERRITORIES else "eu" if name == "europe" else None
