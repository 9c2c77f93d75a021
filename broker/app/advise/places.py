"""Places that advice is limited to: providers, regions, and where data must stay."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType

from broker.core.errors import InvalidInput, UnknownName, did_you_mean
from broker.core.market.offers import Offer
from broker.core.market.places import TERRITORIES, lies_in
from broker.core.values.provider_names import provider_name

RESIDENCIES = tuple(TERRITORIES)
_AGREEMENT_HINT = (
    "record the providers with which you have such an agreement in gpubroker.toml: `[agreements]`, then "
    '`hipaa = ["aws", "gcp"]`'
)


@dataclass(frozen=True, slots=True)
class Places:
    """``providers`` and ``regions`` (``eu-*`` or ``aws/eu-*``): shell-style patterns in lower case; empty: any;
    ``not_in``: regions that are left out; ``residencies``: territories in which a place is known to lie."""

    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    not_in: tuple[str, ...] = ()
    residencies: tuple[str, ...] = ()

    @property
    def limited(self) -> bool:
        return bool(self.providers or self.regions or self.not_in)

    def has(self, offer: Offer) -> bool:
        names = (offer.region.lower(), f"{offer.provider}/{offer.region}".lower())

        def matches_any(patterns: tuple[str, ...]) -> bool:
            return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)

        provider = offer.provider.lower()
        location = f"{offer.provider}/{offer.region}"
        if not all(lies_in(residency, location) for residency in self.residencies):
            return False
        provider_matches = not self.providers or any(fnmatchcase(provider, pattern) for pattern in self.providers)
        return provider_matches and (not self.regions or matches_any(self.regions)) and not matches_any(self.not_in)

    @property
    def beyond_job_files(self) -> tuple[str, ...]:
        """A warning about places that a job file cannot exclude."""
        if not self.not_in:
            return ()
        return (f"the job file cannot leave out {', '.join(self.not_in)}: the policy file does, so apply it first",)


def resolve_places(
    providers: Sequence[str] = (),
    regions: Sequence[str] = (),
    residencies: Sequence[str] = (),
    compliance: Sequence[str] = (),
    agreements: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Places:
    """The places that meet all of these options. ``agreements``: by name (``hipaa``), the providers with which the
    organization has one; ``compliance``: the names that are required.

    Raises `UnknownName` for a residency without a list of regions, `InvalidInput` for an agreement that is not recorded
    and if no provider is left.
    """
    provider_names, recorded = tuple(requested.lower() for requested in providers), agreements
    for requested in dict.fromkeys(requested.lower() for requested in compliance):
        if requested not in recorded:
            raise InvalidInput(
                f"no agreement {requested!r} is recorded{did_you_mean(requested, recorded)}",
                where="--where compliance",
                hint=_AGREEMENT_HINT,
            )
        agreed_providers = [provider_name(name.lower()) for name in recorded[requested]]
        provider_names = tuple(
            name
            for name in agreed_providers
            if not provider_names or any(fnmatchcase(name, pattern) for pattern in provider_names)
        )
        if not provider_names:
            raise InvalidInput(
                f"no provider is left: the agreement {requested!r} names {', '.join(agreed_providers) or 'none'}",
                where="--where compliance",
            )
    allowed = tuple(requested.lower() for requested in regions)
    denied: tuple[str, ...] = ()
    for residency in residencies:
        if residency.lower() not in TERRITORIES:
            raise UnknownName("residency", residency, RESIDENCIES)
        territory, beyond = TERRITORIES[residency.lower()]
        denied = (*denied, *beyond)
        allowed = _intersect(allowed, territory, residency) if allowed else territory
    return Places(provider_names, allowed, denied, tuple(residency.lower() for residency in residencies))


def _intersect(regions: Iterable[str], territory: Iterable[str], residency: str) -> tuple[str, ...]:
    """Patterns of the regions that are both in ``regions`` and in the territory: those of ``regions`` that a pattern of
    the territory covers, and those of the territory that a pattern of ``regions`` covers. Patterns of the territory
    have ``*`` as their only wildcard. Raises `InvalidInput` if there are none."""
    patterns: list[str] = []
    for pattern in regions:
        provider, slash, region = pattern.rpartition("/")
        if any(
            fnmatchcase(region, territory_pattern) for territory_pattern in territory
        ):  # a `*` in it is covered by a `*`
            patterns.append(pattern)
        elif not set("?[") & set(region):
            patterns += [
                f"{provider}{slash}{territory_pattern}"
                for territory_pattern in territory
                if fnmatchcase(territory_pattern, region)
            ]
    if not patterns:
        raise InvalidInput(
            f"none of {', '.join(regions)} is known to lie in {residency.upper()}", where="--where region",
            hint="leave region out, or name regions of that territory, such as 'eu-west-*'",
        )  # fmt: skip
    return tuple(patterns)


def check_providers(patterns: Iterable[str], known: Collection[str]) -> None:
    """Raises `UnknownName` for a provider name or pattern that matches no known provider."""
    for pattern in patterns:
        if not any(fnmatchcase(provider, pattern) for provider in known):
            raise UnknownName("provider", pattern, known, where="--where provider")
