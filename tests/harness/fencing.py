"""Fences a broker over its internal listener, and lifts the fence, as operators and standbys do."""

from __future__ import annotations

from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.config.changes import Operation
from server.config.rows import ResourceType
from server.config.standby_config import FENCED_BY
from server.runtime.clock import Clock
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import ServedBroker

INTERNAL = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter_broker_listener_name": "INTERNAL",
}
"""The properties of a broker that can be fenced."""
BY = "broker-b:9095"


async def fence(served: ServedBroker, by: str = BY, *, clock: Clock | None = None) -> None:
    """Fence a broker, and wait until it has started again, with a clock if one is given."""
    assert await set_fence(await served.connect("INTERNAL"), by) == (ErrorCode.NONE, None)
    await served.restarted(clock)


async def lift(served: ServedBroker) -> None:
    """Lift the fence, and wait until the broker has started again."""
    assert await set_fence(await served.connect("INTERNAL"), None) == (ErrorCode.NONE, None)
    await served.restarted()


async def set_fence(
    client: RawClient, by: str | None, *, resource: str = "1"
) -> tuple[int, str | None]:
    """Set `broker.fenced.by`, or delete it for None. Returns the error code and the message."""
    change = AlterableConfig(
        name=FENCED_BY, config_operation=Operation.DELETE if by is None else Operation.SET, value=by
    )
    asked = AlterConfigsResource(
        resource_type=ResourceType.BROKER, resource_name=resource, configs=(change,)
    )
    request = IncrementalAlterConfigsRequest(resources=(asked,), validate_only=False)
    (answer,) = (await client.call(request, 1, IncrementalAlterConfigsResponse)).responses
    return answer.error_code, answer.error_message
