"""A login to AWS, and calls to its APIs with boto3, whose exceptions stay in this file.

Logins are searched where boto3 searches (variables, ``~/.aws``, a container's role), without the network; the role of
an EC2 machine counts only with the setting ``instance_role``, because searching for one elsewhere takes seconds. Keys
stay in boto3: nothing here reads, keeps or prints one. Endpoints follow AWS_ENDPOINT_URL and
AWS_ENDPOINT_URL_<SERVICE>. Throttled calls are repeated by boto3 (standard mode: back-off with jitter).

The rights of a login to AWS, tried without changing anything, and buckets for run folders.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from broker.core.errors import (
    BrokerError,
    InvalidInput,
    LoginMissing,
    Malformed,
    NoCapacity,
    OutcomeUnknown,
    QuotaExceeded,
    Refused,
    Throttled,
    Unreachable,
)
from broker.core.ports import Bucket
from providers.aws.settings import NAME, AwsSettings
from providers.http import short_message

LOGIN_HINT = (
    "run `aws configure` or `aws sso login`, or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)

_MAX_PAGES = 500
# Seconds to wait for a connection and for an answer of a request that is sent only once; a person waits for it.
_MAX_SECONDS_ONCE = 20.0
_SIGNS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
          "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")  # fmt: skip
_FILES = (("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"), ("AWS_CONFIG_FILE", "~/.aws/config"))
_THROTTLED = {"Throttling", "ThrottlingException", "ThrottledException", "RequestLimitExceeded", "RequestThrottled",
              "TooManyRequestsException", "LimitExceededException", "MaxConfigLimitExceeded"}  # fmt: skip
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "UnauthorizedSSOTokenError"}
_CLOCK = {"RequestExpired", "RequestTimeTooSkewed", "RequestInTheFuture"}
_REJECTED = {"AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch",
          "InvalidSignatureException", "MissingAuthenticationToken", "InvalidAccessKeyId", "IncompleteSignature",
          "OptInRequired"}  # fmt: skip
_FORBIDDEN = {"UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthorizationError"}
_SOLD_OUT = {"InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity"}
_QUOTA = {"InstanceLimitExceeded", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"}


def login_source(settings: AwsSettings, environ: Mapping[str, str] = os.environ) -> str:
    """The source of a possible login: the name of a variable, a file or a setting; empty without one. No network; reads
    no key.
    """
    if settings.profile:
        return "the setting profile"
    for variable in _SIGNS:
        if environ.get(variable):
            return variable
    for variable, default in _FILES:
        if (file := Path(environ.get(variable) or default).expanduser()).is_file():
            return str(file)
    return "the setting instance_role" if settings.instance_role else ""


def has_sdk() -> bool:
    """Whether boto3 is installed."""
    return find_spec("boto3") is not None


@cache
def _descriptions(path: str | None) -> Any:
    """The descriptions of AWS's services, read once for all logins: several megabytes of JSON."""
    from botocore.loaders import create_loader  # type: ignore[import-untyped]  # ships no types

    return create_loader(path)


class AwsLogin:
    """Clients of one account, safe to share between threads. ``sign``: where the login was found."""

    def __init__(self, session: Any, settings: AwsSettings, sign: str) -> None:
        self.sign = sign
        self._session = session
        self._settings = settings
        self._clients: dict[tuple[str, str, int], Any] = {}
        self._making = threading.Lock()

    @classmethod
    def find(cls, settings: AwsSettings) -> AwsLogin | None:
        """The login found, or None: no sign of one, no boto3, or files without keys.

        Raises `LoginMissing` for a login that is named but unusable (an unknown profile, an expired session).
        """
        sign = login_source(settings)
        if not sign or not has_sdk():
            return None
        import boto3
        from botocore.session import Session  # type: ignore[import-untyped]  # ships no types

        with _translate_errors(f"{NAME}: {sign}"):
            core = Session(profile=settings.profile)
            core.register_component("data_loader", _descriptions(core.get_config_variable("data_path")))
            core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_time_or_none)
            session = boto3.Session(botocore_session=core)
            credentials = session.get_credentials()
            if credentials is None:
                return None
            credentials.get_frozen_credentials()
        return cls(session, settings, sign)

    @property
    def default_region(self) -> str | None:
        """The region that the variables or the profile name."""
        region: str | None = self._session.region_name
        return region

    def client(self, service: str, region: str, *, attempts: int | None = None) -> Any:
        """boto3's client of a service in a region. ``attempts``: the maximum number of times that boto3 sends a
        request; None for the setting."""
        max_attempts = self._settings.attempts if attempts is None else attempts
        with self._making:  # a boto3 session is not safe to share, its clients are
            sdk_client = self._clients.get((service, region, max_attempts))
            if sdk_client is None:
                with _translate_errors(f"{NAME}/{region}: {service}"):
                    sdk_client = self._clients[service, region, max_attempts] = self._make(
                        service, region, max_attempts
                    )
            return sdk_client

    def _make(self, service: str, region: str, attempts: int) -> Any:
        from botocore.config import Config  # type: ignore[import-untyped]  # ships no types

        settings = self._settings
        seconds = min(settings.timeout_seconds, _MAX_SECONDS_ONCE) if attempts == 1 else settings.timeout_seconds
        return self._session.client(
            service,
            region_name=region,
            verify=str(settings.ca_bundle) if settings.ca_bundle else None,
            config=Config(
                connect_timeout=seconds,
                read_timeout=seconds,
                retries={"mode": "standard", "total_max_attempts": attempts},
                user_agent_extra="gpubroker",
            ),
        )

    def call(self, service: str, region: str, operation: str, **parameters: Any) -> Mapping[str, Any]:
        """One call, by the name of boto3's method. Raises `Throttled`, `Unreachable`, `LoginMissing`, `Refused`,
        `Malformed`, `NoCapacity` or `QuotaExceeded`, which name service, operation and region."""
        return _call_method(self.client(service, region), service, region, operation, parameters)

    def call_once(self, service: str, region: str, operation: str, **parameters: Any) -> Mapping[str, Any]:
        """`call` for a request that must not take effect twice: boto3 sends it once. Raises `OutcomeUnknown` if it may
        have taken effect, and the errors of `call` if it has not."""
        from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError  # type: ignore[import-untyped]  # ships no types

        try:
            return _call_method(self.client(service, region, attempts=1), service, region, operation, parameters)
        except (Unreachable, Malformed) as error:
            if isinstance(error.__cause__, ConnectTimeoutError | EndpointConnectionError):
                raise  # it was never sent
            raise OutcomeUnknown(error.message, where=error.where) from error

    def rows(
        self, service: str, region: str, operation: str, key: str, *, page_key: str = "NextToken", **parameters: Any
    ) -> Iterator[Any]:
        """The elements of the list ``key`` of all pages. Raises what `call` raises, and `Malformed` when a page's
        token (``page_key``) comes again."""
        seen: set[str] = set()
        for _ in range(_MAX_PAGES):
            answer = self.call(service, region, operation, **parameters)
            yield from answer.get(key) or ()
            next_token = answer.get(page_key)
            if not next_token:
                return
            if next_token in seen:
                break
            seen.add(next_token)
            parameters[page_key] = next_token
        raise Malformed("endless pages: a page token was repeated", where=f"{NAME}/{region}: {service}:{operation}")


def _call_method(
    client: Any, service: str, region: str, operation: str, parameters: Mapping[str, Any]
) -> Mapping[str, Any]:
    where = f"{NAME}/{region}: {service}:{operation}"
    with _translate_errors(where):
        answer = getattr(client, operation)(**parameters)
        if not isinstance(answer, dict):
            raise Malformed("the answer is not a structure", where=where)
        return answer


def _time_or_none(value: Any) -> datetime | None:
    """A time as AWS writes it; None if invalid, so that one invalid time does not lose the other rows of a page."""
    from botocore.utils import parse_timestamp  # type: ignore[import-untyped]  # ships no types

    try:
        parsed: datetime = parse_timestamp(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return parsed


@contextmanager
def _translate_errors(where: str) -> Iterator[None]:
    from botocore import exceptions as said  # type: ignore[import-untyped]  # ships no types
    from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]  # ships no types

    try:
        yield
    except BrokerError:
        raise
    except said.ClientError as error:
        raise _service_error(error, where) from error
    except (
        said.NoCredentialsError,
        said.PartialCredentialsError,
        said.CredentialRetrievalError,
        said.ProfileNotFound,
        said.TokenRetrievalError,
        said.SSOError,
        said.NoAuthTokenError,
        said.ConfigParseError,
    ) as error:
        raise LoginMissing(f"the login cannot be used: {short_message(error)}", where=where, hint=LOGIN_HINT) from error
    except (said.HTTPClientError, said.ConnectionError) as error:
        hint = "is the network up, and AWS_ENDPOINT_URL right where it is set?"
        raise Unreachable(f"cannot be reached: {short_message(error)}", where=where, hint=hint) from error
    except (said.InvalidEndpointConfigurationError, said.UnknownServiceError, said.InvalidRegionError) as error:
        hint = "see AWS_ENDPOINT_URL and the settings of provider aws"
        raise Refused(short_message(error), where=where, hint=hint) from error
    except (ResponseParserError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        # botocore's parsers pass on the errors of int(), dates and XML unchanged.
        raise Malformed(f"the answer cannot be read: {short_message(error)}", where=where) from error
    except said.BotoCoreError as error:
        raise Refused(short_message(error), where=where) from error


def _service_error(error: Any, where: str) -> BrokerError:
    details = error.response.get("Error", {})
    code, message = str(details.get("Code", "")), str(details.get("Message", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    reason = short_message((f"{code}: {message}" if message else code) or f"HTTP {status}")
    if code in _THROTTLED or status == 429:
        return Throttled(f"rate limit exceeded ({reason})", where=where, hint="poll less often")
    if code in _CLOCK:
        return LoginMissing(f"{reason}: this machine's clock is off", where=where, hint="set the clock (timedatectl)")
    if code in _EXPIRED:
        return LoginMissing(f"the login has expired ({reason})", where=where, hint=LOGIN_HINT)
    if code in _REJECTED:
        return LoginMissing(f"the login was rejected ({reason})", where=where, hint=LOGIN_HINT)
    if code in _FORBIDDEN:
        action = where.rpartition(" ")[2].replace("_", "")
        return Refused(
            f"not permitted ({reason})", where=where, hint=f"the login needs the IAM permission for {action}"
        )
    if code in _SOLD_OUT:
        return NoCapacity(reason, where=where)
    if code in _QUOTA:
        return QuotaExceeded(reason, where=where, hint="raise it in the Service Quotas console")
    if status >= 500:
        return Unreachable(reason, where=where, hint="AWS reports a server error; the next poll retries")
    return Refused(reason, code=code, where=where)


# What is read about machines, and why. EC2 says whether it would be permitted (`DryRun`).
_READ_RIGHTS = {
    "describe_instances": "to find machines, and to tell an interruption from a failure",
    "describe_spot_instance_requests": "to tell that AWS took a spot machine back",
    "describe_spot_price_history": "for spot prices",
    "describe_capacity_reservations": "for capacity that is paid for already",
}
_BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_DEFAULT_REGION = "us-east-1"  # of AWS, too; S3 does not accept it as a location constraint
_RIGHTS = "https://docs.skypilot.co/en/latest/cloud-setup/cloud-permissions/aws.html"
_CLEAN_UP = {
    "ID": "gpubroker-incomplete-uploads",
    "Status": "Enabled",
    "Filter": {"Prefix": ""},
    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
}


def home_region(login: AwsLogin) -> str:
    """The region that the variables or the profile name."""
    return os.environ.get("AWS_REGION") or login.default_region or _DEFAULT_REGION


def check_access(login: AwsLogin) -> Iterator[str | BrokerError]:
    """See `broker.core.ports.ChecksAccess`."""
    region = home_region(login)
    try:
        identity = login.call("sts", _DEFAULT_REGION, "get_caller_identity")  # a region that every account has
    except BrokerError as error:
        yield error
        return
    yield f"logged in as {identity.get('Arn')}; region {region}"
    permitted = []
    for operation, purpose in _READ_RIGHTS.items():
        try:
            login.call("ec2", region, operation, DryRun=True)
        except LoginMissing as error:  # the login itself works
            where, hint = (
                f"{NAME}/{region}",
                "enable it (AWS console: Account, AWS Regions), or set AWS_REGION to another",
            )
            yield LoginMissing(f"the account may not use the region {region}: {error.message}", where=where, hint=hint)
            return
        except Refused as error:
            if error.code != "DryRunOperation":
                yield Refused(f"{error.message}; it is needed {purpose}", where=error.where, hint=error.hint)
                continue
        except BrokerError as error:
            yield error
            return
        permitted.append("ec2:" + operation.title().replace("_", ""))
    yield f"permitted: {', '.join(permitted)}; not tried: what SkyPilot needs to start and end machines ({_RIGHTS})"


def make_bucket(login: AwsLogin, name: str) -> Bucket:
    """See `broker.core.ports.MakesBuckets`. It lies in the region of the login."""
    if not _BUCKET_NAME.fullmatch(name) or ".." in name:
        hint = "use 3 to 63 lower-case letters, digits and hyphens"
        raise InvalidInput(f"{name!r} is not a name for a bucket of S3", where="--create-bucket", hint=hint)
    region = home_region(login)
    account = str(login.call("sts", _DEFAULT_REGION, "get_caller_identity").get("Account"))
    undo = f"aws s3 rb s3://{name}"

    def call(operation: str, **parameters: Any) -> Any:
        return login.call("s3", region, operation, Bucket=name, **parameters)

    try:
        found = call("head_bucket", ExpectedBucketOwner=account)
    except Refused as error:
        if error.code != "404":
            hint = "choose another name: those of S3 are shared by all accounts"
            raise InvalidInput(
                f"the bucket {name} belongs to another account, or this login may not use it",
                where="--create-bucket",
                hint=hint,
            ) from error
    else:
        return Bucket(f"s3://{name}/gpubroker", f"{NAME}/{found.get('BucketRegion') or region}", False, undo)
    place = {} if region == _DEFAULT_REGION else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    call("create_bucket", **place)
    try:
        blocked = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
        call("put_public_access_block", PublicAccessBlockConfiguration=dict.fromkeys(blocked, True))
        encryption = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
        call("put_bucket_encryption", ServerSideEncryptionConfiguration={"Rules": [encryption]})
        call("put_bucket_lifecycle_configuration", LifecycleConfiguration={"Rules": [_CLEAN_UP]})
    except BaseException as error:
        try:
            call("delete_bucket")
        except BrokerError:
            raise Refused(f"the bucket {name} exists, but is not set up: {error}", where=NAME, hint=undo) from error
        raise
    return Bucket(f"s3://{name}/gpubroker", f"{NAME}/{region}", True, undo)
