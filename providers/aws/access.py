"""The rights of a login to AWS, tried without changing anything, and buckets for run folders."""

import os
import re
from collections.abc import Iterator
from typing import Any

from broker.core.errors import BrokerError, InvalidInput, LoginMissing, Refused
from broker.core.ports import Bucket
from providers.aws.login import AwsLogin
from providers.aws.settings import NAME

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
