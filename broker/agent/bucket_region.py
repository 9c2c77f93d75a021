"""The AWS region of a bucket. Requests are signed for a region, and S3 refuses those signed for another one.

S3 tells the region of any bucket to anybody, in a header of its answer to a HEAD request, whatever else it answers
(S3 API reference, HeadBucket: ``x-amz-bucket-region``). Other stores that speak S3 may or may not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

REGION_VARIABLE = "GPUBROKER_RUNS_REGION"
"""The region of the run folders' bucket, by which the broker spares its nodes the question."""
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")  # a store that is not AWS's own
_NAMED = ("AWS_REGION", "AWS_DEFAULT_REGION")
_TIMEOUT = 5.0  # seconds
_AWS = "https://s3.amazonaws.com"
_known: dict[tuple[str, str], str] = {}


def bucket_region(url: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The region in which the bucket of that URL is; asked for until it is told, once per process. None for URLs of
    other services, and if it is not told: then the variables of AWS's tools apply.

    The store's own answer counts, not ``AWS_REGION``: that is where the user's machines are by default, not where a
    bucket is. Only for a store at another address (``AWS_ENDPOINT_URL``) a named region is taken as it is.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("s3", "s3a"):
        return None
    if environment.get(REGION_VARIABLE):
        return environment[REGION_VARIABLE]
    endpoint = next((environment[name] for name in _ENDPOINTS if environment.get(name)), None)
    if endpoint is not None and any(environment.get(name) for name in _NAMED):
        return None
    where = endpoint or _AWS, parts.netloc
    if where not in _known:
        found = _asked(*where)
        if found is None:  # the network may be there the next time
            return None
        _known[where] = found
    return _known[where]


def _asked(endpoint: str, bucket: str) -> str | None:
    # Imported late: it takes 4 MB, which machines without S3 save.
    import http.client
    import urllib.error
    import urllib.request

    address = f"{endpoint.rstrip('/')}/{quote(bucket)}"
    if urlsplit(address).scheme not in ("http", "https"):
        return None
    request = urllib.request.Request(address, method="HEAD")  # noqa: S310 (the scheme is checked)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 (as above)
            told = answer.headers.get("x-amz-bucket-region")
    except urllib.error.HTTPError as error:  # "forbidden" and "moved" tell it as well
        told = error.headers.get("x-amz-bucket-region")
    except (OSError, ValueError, http.client.HTTPException):
        return None
    return told if told and re.fullmatch(r"[a-z0-9-]{1,40}", told) else None
