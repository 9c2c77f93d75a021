"""The GCP provider: what is asked, in which order, and what happens when a part of it fails."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from broker.core.clock import Clock
from broker.core.errors import Malformed
from broker.core.offers import CapacityType, OfferQuery, SkippedRow
from providers.failures import Failures
from providers.gcp.calls import Asking
from providers.gcp.catalogue import Catalogue, read_prices
from providers.gcp.listed import listed_offers
from providers.gcp.login import ADDS, HOW, Login, has_sdk, sign_of_login
from providers.gcp.machines import machines
from providers.gcp.settings import NAME, GcpSettings
from providers.http import endpoint
from providers.rows import Found, distinct

_KINDS = (CapacityType.ON_DEMAND, CapacityType.SPOT, CapacityType.RESERVED)


class Gcp:
    """Compute Engine's machines with accelerators, in every zone. Without a login there is nothing to ask."""

    name = NAME
    Settings: ClassVar = GcpSettings

    def __init__(self, *, clock: Clock, settings: GcpSettings | None = None, login: Login | None = None) -> None:
        self._clock = clock
        self._settings = settings or GcpSettings()
        self._login = login
        self._given = login is not None

    def offers(self, query: OfferQuery) -> Found:
        """Machines at list prices. What fails does not hold back the rest: it is raised at the end, as one error that
        names each failure. Raises `NoLogin` where there is no login."""
        if query.providers and not any(fnmatchcase(NAME, pattern) for pattern in query.providers):
            return
        asking, failures = self._asking(), Failures()
        yield from distinct(self._offers(asking, query, failures))
        failures.raise_any()

    def _offers(self, asking: Asking, query: OfferQuery, failures: Failures) -> Found:
        catalogue = Catalogue()
        for priced in failures.kept(read_prices(asking)):
            if isinstance(priced, SkippedRow):
                yield priced
            else:
                catalogue.add(priced)
        if not catalogue:
            failures.raise_any()  # nothing can be priced: no reason to ask for more
            raise Malformed("the price catalogue has no parts of machines with accelerators", where=NAME)
        shapes = machines(asking, self._settings, self._settings.regions)
        kinds = tuple(kind for kind in _KINDS if not query.capacity_types or kind in query.capacity_types)
        yield from listed_offers(failures.kept(shapes), catalogue, kinds, self._clock.now())

    def _asking(self) -> Asking:
        """Raises `NoLogin`, `MissingExtra`, or `LoginMissing` for a login that cannot be used."""
        if not self._given and (self._login is None or self._login.sign != sign_of_login(self._settings)):
            self._login = Login.find(self._settings)
        assert self._login is not None
        return Asking(self._login, self._clock)

    def describe_setup(self) -> Mapping[str, Any]:
        """See `broker.app.doctor.DescribesSetup`."""
        sign = sign_of_login(self._settings)
        return {
            "endpoints": {
                "compute": endpoint(NAME, "compute_url", self._settings.compute_url),
                "billing": endpoint(NAME, "billing_url", self._settings.billing_url),
            },
            "logins": {
                "gcp": {
                    "found": bool(sign) and has_sdk(),
                    "where": sign,
                    "how": HOW if has_sdk() else f"pip install 'gpubroker[gcp]', then {HOW}",
                    "adds": ADDS,
                }
            },
        }
