"""ApiVersions (key 18), v0-v4.

Behaviour: lists the APIs and their versions. A request in an unsupported version gets
UNSUPPORTED_VERSION and the same list, encoded in version 0, so that the client can ask again. A
malformed client name or version gets INVALID_REQUEST (KIP-511).
Versions: v3 client_software_name and _version, features · v4 features whose lowest level is 0.
Only the internal listener lists FetchSnapshot (`server/handlers/shared/metadata_log.py`).
Features: those of `server/metadata/features.py`; one that is off is not listed as finalized, as in
Kafka.
"""

from __future__ import annotations

import functools
import re

from protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from protocol.wire.api_keys import APIS, INTERNAL_APIS
from protocol.wire.error_codes import ErrorCode
from server.handlers.shared.metadata_log import is_on_internal_listener
from server.metadata.features import HIGHEST
from server.request_context import RequestContext

STARTS_AT_0_SINCE = 4

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Source: ApiVersionsRequest.java, SOFTWARE_NAME_VERSION_PATTERN."""


async def handle(
    request: ApiVersionsRequest | None, context: RequestContext
) -> ApiVersionsResponse:
    """List the supported APIs; `request` is None if its version is unknown."""
    if request is None:
        return _response(ErrorCode.UNSUPPORTED_VERSION, 0, context)
    if context.header.api_version >= 3 and not _has_valid_names(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=())
    return _response(ErrorCode.NONE, context.header.api_version, context)


def refuse(
    request: ApiVersionsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=error_code, api_keys=())


def _has_valid_names(request: ApiVersionsRequest) -> bool:
    return bool(
        SOFTWARE_NAME.fullmatch(request.client_software_name)
        and SOFTWARE_NAME.fullmatch(request.client_software_version)
    )


def _response(error_code: ErrorCode, version: int, context: RequestContext) -> ApiVersionsResponse:
    features = context.broker.features
    return ApiVersionsResponse(
        error_code=error_code,
        api_keys=_api_keys(is_on_internal_listener(context)),
        supported_features=tuple(
            SupportedFeatureKey(name=name, min_version=0, max_version=level)
            for name, level in HIGHEST.items()
            if version >= STARTS_AT_0_SINCE
        ),
        finalized_features_epoch=features.epoch,
        finalized_features=tuple(
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.levels.items()
            if level
        ),
    )


@functools.cache
def _api_keys(is_internal: bool) -> tuple[ApiVersion, ...]:
    """Returns what a listener advertises; what only followers send, only on the internal one."""
    return tuple(
        ApiVersion(api_key=api.key, min_version=api.version_min, max_version=api.version_max)
        for api in APIS.values()
        if is_internal or api.key not in INTERNAL_APIS
    )
