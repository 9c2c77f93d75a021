"""Places that advice is limited to: providers, regions, and where data must stay."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType

from broker.core.errors import InvalidInput, UnknownName, did_you_mean
from broker.core.market.offers import Offer
from broker.core.market.places import TERRITORIES

RESIDENCIES = tuple(TERRITORIES)
_HOW_TO_AGREE = (
    "record the providers with which you have such an agreement in gpubroker.toml: `[agreements]`, then "
    '`hipaa = ["aws", "gcp"]`'
)


@dataclass(frozen=True, slots=True)
class Places:
    """``providers`` and ``regions`` (``eu-*`` or ``aws/eu-*``): shell-style patterns in lower case; empty: any;
    ``not_in``: regions that are left out."""

    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    not_in: tuple[str, ...] = ()

    @property
    def limited(self) -> bool:
        return bool(self.providers or self.regions or self.not_in)

    def has(self, offer: Offer) -> bool:
        """Whether the places include the offer."""
        names = (offer.region.lower(), f"{offer.provider}/{offer.region}".lower())

        def any_of(patterns: tuple[str, ...]) -> bool:
            return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)

        provider = offer.provider.lower()
        here = not self.providers or any(fnmatchcase(provider, pattern) for pattern in self.providers)
        return here and (not self.regions or any_of(self.regions)) and not any_of(self.not_in)

    @property
    def beyond_job_files(self) -> tuple[str, ...]:
        """A warning about places that a job file cannot exclude."""
        if not self.not_in:
            return ()
        return (f"the job file cannot leave out {', '.join(self.not_in)}: the policy file does, so apply it first",)


def places_of(
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
    named, known = tuple(one.lower() for one in providers), agreements
    for one in dict.fromkeys(one.lower() for one in compliance):
        if one not in known:
            raise InvalidInput(
                f"no agreement {one!r} is recorded{did_you_mean(one, known)}",
                where="--where compliance",
                hint=_HOW_TO_AGREE,
            )
        with_it = [name.lower() for name in known[one]]
        named = tuple(name for name in with_it if not named or any(fnmatchcase(name, pattern) for pattern in named))
        if not named:
            raise InvalidInput(
                f"no provider is left: the agreement {one!r} names {', '.join(with_it) or 'none'}",
                where="--where compliance",
            )
    allowed = tuple(one.lower() for one in regions)
    denied: tuple[str, ...] = ()
    for residency in residencies:
        if residency.lower() not in TERRITORIES:
            raise UnknownName("residency", residency, RESIDENCIES)
        territory, beyond = TERRITORIES[residency.lower()]
        denied = (*denied, *beyond)
        allowed = _within(allowed, territory, residency) if allowed else territory
    return Places(named, allowed, denied)


def _within(regions: Iterable[str], territory: Iterable[str], residency: str) -> tuple[str, ...]:
    """Patterns of the regions that are both in ``regions`` and in the territory: those of ``regions`` that a pattern of
    the territory covers, and those of the territory that a pattern of ``regions`` covers. Patterns of the territory
    have ``*`` as their only wildcard. Raises `InvalidInput` if there are none."""
    found: list[str] = []
    for pattern in regions:
        provider, slash, region = pattern.rpartition("/")
        if any(fnmatchcase(region, one) for one in territory):  # a `*` in it is covered by a `*`
            found.append(pattern)
        elif not set("?[") & set(region):
            found += [f"{provider}{slash}{one}" for one in territory if fnmatchcase(one, region)]
    if not found:
        raise InvalidInput(
            f"none of {', '.join(regions)} is known to lie in {residency.upper()}", where="--where region",
            hint="leave region out, or name regions of that territory, such as 'eu-west-*'",
        )  # fmt: skip
    return tuple(found)


def check_providers(named: Iterable[str], known: Collection[str]) -> None:
    """Raises `UnknownName` for a provider name or pattern that matches no known provider."""
    for name in named:
        if not any(fnmatchcase(one, name) for one in known):
            raise UnknownName("provider", name, known, where="--where provider")
