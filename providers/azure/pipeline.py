"""Azure's SDK, set up for gpubroker: the client of Azure Resource Manager with this machine's certificates, timeouts,
attempts and clock. The only file that imports it, so it is imported late.

Differences from the SDK's own set-up: waits use the clock and last at most a minute; requests go only to the host of
the setting ``management_url``, whatever a link to the next page names, so that the login is sent nowhere else;
redirects are not followed; no resource provider is registered with the subscription on the way.
"""

import logging
import os
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from azure.core.credentials import AccessToken, TokenCredential
from azure.core.pipeline import PipelineRequest, policies
from azure.core.pipeline.transport import RequestsTransport
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy

from broker.core.errors import Throttled
from broker.core.values.clock import Clock
from providers.azure.settings import AUTHORITY, AzureSettings

_LONGEST_WAIT = 60.0  # s; a longer requested wait is left to the next poll
_RENEW_BEFORE = 300  # s before a token ends
_SOVEREIGN = ("management.usgovcloudapi.net", "management.chinacloudapi.cn")

# azure-identity warns of every missing source of a login, on stderr if its log has no handler.
logging.getLogger("azure").addHandler(logging.NullHandler())


def credential(settings: AzureSettings, *, managed_identity: bool) -> TokenCredential:
    """azure-identity's sources, in its order; the identity of an Azure machine only if requested, because the search
    for it elsewhere takes seconds. A custom authority (AZURE_AUTHORITY_HOST) is not looked up at Microsoft."""
    from azure.identity import DefaultAzureCredential

    return DefaultAzureCredential(
        exclude_managed_identity_credential=not managed_identity,
        exclude_interactive_browser_credential=True,
        disable_instance_discovery=bool(os.environ.get(AUTHORITY)),
        retry_total=settings.attempts - 1,
        **_connection(settings),
    )


def scope(settings: AzureSettings) -> str:
    host = urlsplit(settings.management_url).hostname
    return f"https://{host if host in _SOVEREIGN else 'management.azure.com'}/.default"


class CachedCredential:
    """A credential that caches its tokens until they expire: some sources start a program for each token."""

    def __init__(self, source: TokenCredential) -> None:
        self._source = source
        self._token: AccessToken | None = None
        self._asking = threading.Lock()

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """The token, a new one where the old is about to end or Azure wants one of another kind (``claims``)."""
        with self._asking:
            has_claims = bool(options.get("claims"))
            if self._token is None or has_claims or self._token.expires_on - time.time() < _RENEW_BEFORE:
                self._token = self._source.get_token(*scopes, **options)
            return self._token


def client(token: TokenCredential, subscription: str, settings: AzureSettings, clock: Clock) -> ComputeManagementClient:
    """The client of one subscription; safe to share between threads."""
    return ComputeManagementClient(
        token,
        subscription,
        base_url=settings.management_url,
        credential_scopes=[scope(settings)],
        polling_interval=0,
        transport=_Transport(clock, **_connection(settings)),
        policies=[
            policies.RequestIdPolicy(),
            policies.HeadersPolicy({"Accept": "application/json"}),
            policies.UserAgentPolicy("gpubroker"),
            policies.ProxyPolicy(),
            policies.RetryPolicy(retry_total=settings.attempts - 1, retry_backoff_factor=0.5, retry_backoff_max=30),
            _SingleHostPolicy(settings.management_url),
            ARMChallengeAuthenticationPolicy(token, scope(settings)),
        ],
    )


def _connection(settings: AzureSettings) -> dict[str, Any]:
    return {
        "connection_verify": str(settings.ca_bundle) if settings.ca_bundle else True,
        "connection_timeout": settings.timeout_seconds,
        "read_timeout": settings.timeout_seconds,
    }


class _Transport(RequestsTransport):  # type: ignore[misc]  # azure-core imports it lazily, so it has no type
    def __init__(self, clock: Clock, **connection: Any) -> None:
        super().__init__(**connection)
        self._clock = clock

    def sleep(self, duration: float) -> None:
        if duration > _LONGEST_WAIT:
            raise Throttled("rate limit exceeded", after=duration, hint="poll less often")
        self._clock.sleep(duration)


class _SingleHostPolicy(policies.SansIOHTTPPolicy[Any, Any]):
    def __init__(self, base: str) -> None:
        self._base = urlsplit(base)

    def on_request(self, request: PipelineRequest[Any]) -> None:
        url, base = urlsplit(request.http_request.url), self._base
        path = url.path if url.path.startswith(base.path) else base.path + url.path
        request.http_request.url = url._replace(scheme=base.scheme, netloc=base.netloc, path=path).geturl()
