"""The AWS region of a bucket. Requests are signed for a region, and S3 refuses those signed for another one.

S3 tells anyone the region of any bucket, in a header of its answer to a HEAD request, whatever the answer's status (S3
API reference, HeadBucket: ``x-amz-bucket-region``). Other stores with the S3 API may not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

REGION_VARIABLE = "GPUBROKER_RUNS_REGION"
"""The variable with the region of the run folders' bucket, set by the broker so that its nodes need not ask."""
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")  # the address of a store that is not AWS's own
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_TIMEOUT = 5.0  # seconds
_AWS = "https://s3.amazonaws.com"
_regions: dict[tuple[str, str], str] = {}


def bucket_region(url: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The region of the bucket of that URL, queried until it is known, once per process.

    None for URLs of other services and if the store does not tell it; then the variables of AWS's tools apply.

    The store's answer takes precedence over ``AWS_REGION``, which is the default region of the user's machines, not the
    bucket's. Only for a store at another address (``AWS_ENDPOINT_URL``) is a configured region used without asking.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("s3", "s3a"):
        return None
    if environment.get(REGION_VARIABLE):
        return environment[REGION_VARIABLE]
    endpoint = next((environment[name] for name in _ENDPOINTS if environment.get(name)), None)
    if endpoint is not None and any(environment.get(name) for name in _REGION_VARIABLES):
        return None
    key = endpoint or _AWS, parts.netloc
    if key not in _regions:
        region = _query_region(*key)
        if region is None:  # the network may be available the next time
            return None
        _regions[key] = region
    return _regions[key]


def _query_region(endpoint: str, bucket: str) -> str | None:
    # Imported late: it takes 4 MB of memory, which machines without S3 do not need.
    import http.client
    import urllib.error
    import urllib.request

    address = f"{endpoint.rstrip('/')}/{quote(bucket)}"
    if urlsplit(address).scheme not in ("http", "https"):
        return None
    request = urllib.request.Request(address, method="HEAD")  # noqa: S310 (the scheme is checked)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 (as above)
            region = answer.headers.get("x-amz-bucket-region")
    except urllib.error.HTTPError as error:  # the answers "forbidden" and "moved" contain it as well
        region = error.headers.get("x-amz-bucket-region")
    except (OSError, ValueError, http.client.HTTPException):
        return None
    return region if region and re.fullmatch(r"[a-z0-9-]{1,40}", region) else None
