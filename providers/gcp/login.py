"""A login to Google Cloud: its source, its project, and the SDK's clients.

It is searched where Google's libraries search (``GOOGLE_APPLICATION_CREDENTIALS``, then the file that ``gcloud auth
application-default login`` writes), without the network. The service account of a Google Cloud machine counts only with
the setting ``metadata_server``, because the search for it elsewhere takes seconds. Keys stay in google-auth: nothing
here keeps or prints one.

Buckets of Cloud Storage for run folders, by its JSON API: one request, so nothing is half-made.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import warnings
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.core.errors import InvalidInput, LoginMissing, MissingExtra, NoLogin, Refused, Unreachable
from broker.core.extras import install_command
from broker.core.ports import Bucket
from providers.gcp.settings import NAME, GcpSettings
from providers.http import setting, short_message

if TYPE_CHECKING:
    import requests


LOGIN_HINT = (
    "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS or "
    f"{setting(NAME, 'credentials_file')} to a service account's key file"
)
PROJECT_HINT = f"set GOOGLE_CLOUD_PROJECT or {setting(NAME, 'project')}"
ADDS = "all offers: prices on demand, of spot and of commitments, spot scores, reservations, quotas and machines"

_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
_PROJECTS = ("GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT")
_MAX_ANSWER = 64 * 2**20  # bytes; a page of 5,000 SKUs has about 8 MB
_WHOLE_ANSWER = 6  # multiple of the timeout after which a slow answer counts as none
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_SDKS = ("google.auth", "google.cloud.compute_v1", "google.cloud.billing_v1")


def has_sdk() -> bool:
    """Whether Google's libraries are installed."""
    try:
        return all(find_spec(name) is not None for name in _SDKS)
    except ModuleNotFoundError:  # a package above is missing
        return False


def login_source(settings: GcpSettings, environ: Mapping[str, str] = os.environ) -> str:
    """The source of a possible login: the name of a setting, a variable or a file; empty without one. No network; reads
    no key.
    """
    for key in ("anonymous", "credentials_file", "metadata_server"):
        if getattr(settings, key):
            return f"the setting {key}"
    if environ.get(_FILE):
        return _FILE
    default = _default_file(environ)
    return str(default) if default.is_file() else ""


def _default_file(environ: Mapping[str, str]) -> Path:
    """The file that ``gcloud auth application-default login`` writes."""
    if folder := environ.get("CLOUDSDK_CONFIG"):
        home = Path(folder)
    elif os.name == "nt":
        home = Path(environ.get("APPDATA", "")) / "gcloud"
    else:
        home = Path("~/.config/gcloud").expanduser()
    return home / "application_default_credentials.json"


class GcpLogin:
    """Clients of one project; safe to share between threads. ``sign``: the source of the login; ``project``: the
    project whose resources are queried."""

    def __init__(self, credentials: Any, project: str, settings: GcpSettings, sign: str = "") -> None:
        self.sign = sign
        self.project = project
        self.settings = settings
        self._credentials = credentials
        self._clients: dict[str, Any] = {}
        self._own = threading.local()
        self._making = threading.Lock()
        self._renewing = threading.Lock()

    @classmethod
    def find(cls, settings: GcpSettings, environ: Mapping[str, str] = os.environ) -> GcpLogin:
        """The login found.

        Raises `NoLogin` without one, `MissingExtra` without Google's libraries, and `LoginMissing` for a named one that
        cannot be used or has no project.
        """
        sign = login_source(settings, environ)
        if not sign:
            how = LOGIN_HINT if has_sdk() else f"{install_command(NAME)}, then {LOGIN_HINT}"
            raise NoLogin(f"no login to Google Cloud; it would add {ADDS}", where=NAME, hint=how)
        if not has_sdk():
            raise MissingExtra("gcp", "a login to Google Cloud")
        credentials, own_project = _credentials(settings, environ)
        candidates = [settings.project, *(environ.get(variable) for variable in _PROJECTS), own_project]
        project = next((name for name in candidates if name), None)
        if project is None:
            raise LoginMissing("the login names no project", where=f"{NAME}: {sign}", hint=PROJECT_HINT)
        return cls(credentials, project, settings, sign)

    def client(self, kind: str) -> Any:
        """The SDK's client of that name."""
        with self._making:
            if kind not in self._clients:
                self._clients[kind] = self._make(kind)
            return self._clients[kind]

    @property
    def answers(self) -> list[requests.Response]:
        """The last answer to this thread, unparsed."""
        responses: list[requests.Response] = self._own.__dict__.setdefault("answers", [])
        return responses

    def _make(self, kind: str) -> Any:
        is_billing = kind == "CloudCatalogClient"
        sdk = import_module("google.cloud.billing_v1" if is_billing else "google.cloud.compute_v1")
        url = self.settings.billing if is_billing else self.settings.compute
        options = {"api_endpoint": url}
        client = getattr(sdk, kind)(credentials=self._credentials, client_options=options, transport="rest")

        def store_answer(answer: requests.Response, *args: Any, **kwargs: Any) -> None:
            _read_body(answer, self.settings.timeout_seconds)
            self.answers[:] = [answer]

        # The SDK's REST transports accept no session; all keep theirs under this name.
        session = client.transport._session
        self._prepare(session)
        session.hooks["response"].append(store_answer)
        return client

    def session(self) -> requests.Session:
        """A session that signs its requests, for APIs without a client of the SDK."""
        session: requests.Session = import_module("google.auth.transport.requests").AuthorizedSession(self._credentials)
        self._prepare(session)
        return session

    def _prepare(self, session: requests.Session) -> None:
        session.max_redirects = 0  # the APIs do not redirect, so a redirect must not receive the login
        if bundle := self.settings.ca_bundle:
            if not bundle.is_file():
                raise InvalidInput("no such file", where=str(bundle), hint=setting(NAME, "ca_bundle"))
            session.mount("https://", _ca_bundle_adapter(str(bundle)))

    def renew(self) -> None:
        """Renew the login for the next call. Raises `LoginMissing` if it has expired or been revoked, `Unreachable` if
        its issuer cannot be reached.
        """
        if self._credentials.valid:
            return
        import requests
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.auth.transport.requests import Request

        where = f"{NAME}: {self.sign}"
        with self._renewing, requests.Session() as session:
            if self._credentials.valid:
                return
            self._prepare(session)
            try:
                self._credentials.refresh(_TimedRequest(Request(session), self.settings.timeout_seconds))
            except TransportError as error:
                hint = "is the network up?"
                raise Unreachable(f"the login cannot be renewed: {_message(error)}", where=where, hint=hint) from error
            except GoogleAuthError as error:
                reason = f"the login has expired or is not accepted: {_message(error)}"
                raise LoginMissing(reason, where=where, hint=LOGIN_HINT) from error
            except (ValueError, TypeError, KeyError, AttributeError) as error:  # an unparsable answer
                raise Refused(
                    f"the login cannot be renewed: {_message(error)}", where=where, hint=LOGIN_HINT
                ) from error


def _read_body(answer: requests.Response, seconds: float) -> None:
    """Reads the body, limited in size and in total time: the SDK's timeout only limits each pause."""
    import requests

    ends = time.monotonic() + _WHOLE_ANSWER * seconds
    body = bytearray()
    for piece in answer.iter_content(2**16):
        body += piece
        if len(body) > _MAX_ANSWER:
            raise ValueError(f"more than {_MAX_ANSWER >> 20} MiB")
        if time.monotonic() > ends:
            raise requests.Timeout("the response is too slow")
    answer._content = bytes(body)  # the attribute that `content` reads first


def _ca_bundle_adapter(bundle: str) -> requests.adapters.HTTPAdapter:
    """Trusts the certificates in that file, and no others: ``session.verify`` would give way to REQUESTS_CA_BUNDLE."""
    from requests.adapters import HTTPAdapter

    class TrustingAdapter(HTTPAdapter):
        def send(self, *args: Any, **kwargs: Any) -> requests.Response:
            return super().send(*args, **{**kwargs, "verify": bundle})

    return TrustingAdapter()


class _TimedRequest:
    """google-auth's requests, with the settings' timeouts."""

    def __init__(self, request: Any, seconds: float) -> None:
        self._request = request
        self._seconds = seconds

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._request(*args, **{**kwargs, "timeout": self._seconds})


def _credentials(settings: GcpSettings, environ: Mapping[str, str]) -> tuple[Any, str | None]:
    """google-auth's credentials, and the project they name."""
    from google.auth.exceptions import GoogleAuthError

    auth: Any = import_module("google.auth")  # half typed: its functions have no annotations
    if settings.anonymous:
        return import_module("google.auth.credentials").AnonymousCredentials(), None
    if settings.metadata_server and not settings.credentials_file:
        return import_module("google.auth.compute_engine").Credentials(scopes=[_SCOPE]), None
    file = settings.credentials_file or Path(environ.get(_FILE) or _default_file(environ))
    try:
        with warnings.catch_warnings():
            # The warning is about untrusted files; this one is the user's own.
            warnings.simplefilter("ignore", DeprecationWarning)
            credentials, project = auth.load_credentials_from_file(str(file), scopes=[_SCOPE])
        document = json.loads(file.read_text("utf-8"))
    except (GoogleAuthError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"the login cannot be used: {_message(error)}"
        raise LoginMissing(reason, where=f"{NAME}: {file}", hint=LOGIN_HINT) from error
    if hasattr(credentials, "with_always_use_jwt_access"):  # a service account signs for itself, without a round trip
        credentials = credentials.with_always_use_jwt_access(True)
    return credentials, project or document.get("quota_project_id")


def _message(error: Exception) -> str:
    return short_message((error.args or (error,))[0] or error)


_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{1,61}[a-z0-9]")
_DEFAULT_REGION = "us-central1"
_WHERE = f"{NAME}: buckets"
# Private by policy, without the deleted objects that Google keeps, and bills, for a week unless told otherwise.
_PROPERTIES = {
    "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}, "publicAccessPrevention": "enforced"},
    "softDeletePolicy": {"retentionDurationSeconds": "0"},
    "lifecycle": {"rule": [{"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 7}}]},
}


def make_bucket(login: GcpLogin, name: str) -> Bucket:
    """See `broker.core.ports.MakesBuckets`. It lies in the region of the settings or of gcloud's variables."""
    if not _NAME.fullmatch(name):
        hint = "use 3 to 63 lower-case letters, digits and hyphens"
        raise InvalidInput(f"{name!r} is not a name for a bucket of Cloud Storage", where="--create-bucket", hint=hint)
    exact = [region for region in login.settings.regions if not set("*?") & set(region)]
    region = next(iter(exact), os.environ.get("CLOUDSDK_COMPUTE_REGION") or _DEFAULT_REGION)
    undo = f"gcloud storage buckets delete gs://{name}"
    body = {"name": name, "location": region, **_PROPERTIES}
    status, answer = _request(login, "POST", "", body)
    if status == 409:
        status, answer = _request(login, "GET", f"/{name}", None)
        if status != 200:
            raise InvalidInput(
                f"the bucket {name} belongs to somebody else, or this login may not use it",
                where="--create-bucket",
                hint="choose another name: those of Cloud Storage are shared by all projects",
            )
        return Bucket(f"gs://{name}/gpubroker", f"{NAME}/{str(answer.get('location')).lower()}", False, undo)
    if status != 200:
        message = (answer.get("error") or {}).get("message") or f"HTTP {status}"
        raise Refused(message, where=_WHERE, hint=f"the login needs the role Storage Admin in {login.project}")
    return Bucket(f"gs://{name}/gpubroker", f"{NAME}/{region}", True, undo)


def _request(login: GcpLogin, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    import requests

    address = os.environ.get("GOOGLE_BASE_URL") or "https://storage.googleapis.com"  # as for run folders
    login.renew()
    try:
        with login.session() as session:
            parameters = {"project": login.project} if method == "POST" else {}
            answer = session.request(
                method,
                f"{address}/storage/v1/b{path}",
                params=parameters,
                json=body,
                timeout=login.settings.timeout_seconds,
            )
            content = answer.json()
    except (requests.RequestException, ValueError) as error:
        raise Unreachable(f"Cloud Storage gave no answer: {type(error).__name__}", where=_WHERE) from error
    return answer.status_code, content if isinstance(content, dict) else {}
