"""Places that advice is limited to: providers, regions, and where data must stay."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from broker.core.errors import UnknownName
from broker.core.market.offers import Offer

# Regions as providers name them, lower case. London, Zurich and Jovanovac lie in regions that are called European, and
# Azure's Brazil US in Brazil.
_RESIDENCY: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
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
RESIDENCIES = tuple(_RESIDENCY)


@dataclass(frozen=True, slots=True)
class Places:
    """``providers`` and ``regions`` (``eu-*`` or ``aws/eu-*``): shell-style patterns in lower case, any where empty;
    ``not_in``: regions that are left out."""

    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    not_in: tuple[str, ...] = ()

    @property
    def limited(self) -> bool:
        return bool(self.providers or self.regions or self.not_in)

    def has(self, offer: Offer) -> bool:
        """Whether an offer lies within."""
        names = (offer.region.lower(), f"{offer.provider}/{offer.region}".lower())

        def any_of(patterns: tuple[str, ...]) -> bool:
            return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)

        provider = offer.provider.lower()
        here = not self.providers or any(fnmatchcase(provider, pattern) for pattern in self.providers)
        return here and (not self.regions or any_of(self.regions)) and not any_of(self.not_in)

    @property
    def beyond_job_files(self) -> tuple[str, ...]:
        """What a job file cannot leave out, as a warning."""
        if not self.not_in:
            return ()
        return (f"the job file cannot leave out {', '.join(self.not_in)}: the policy file does, so apply it first",)


def places_of(providers: list[str] | None, regions: list[str] | None, residency: str | None) -> Places:
    """The places of options. Raises `UnknownName` for a residency without a list of regions."""
    allowed = tuple(one.lower() for one in regions or ())
    denied: tuple[str, ...] = ()
    if residency is not None:
        if residency.lower() not in _RESIDENCY:
            raise UnknownName("residency", residency, RESIDENCIES)
        territory, denied = _RESIDENCY[residency.lower()]
        allowed = allowed or territory
    return Places(tuple(one.lower() for one in providers or ()), allowed, denied)
