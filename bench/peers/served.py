"""What a broker serves, by its own answers: the versions of its requests, and its properties.

A broker closes the connection after a request that it does not serve, and starts despite a property
that it does not know. So its answers say which rows cannot be measured with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.base.connection import connected
from bench.base.messages import answer_in, frame_of
from bench.base.processes import NODE_ID
from bench.base.raw_protocol import api_versions_request
from bench.peers.comparison import Peer
from protocol.messages.api_versions import ApiVersionsResponse
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from protocol.wire.api_keys import APIS
from protocol.wire.error_codes import ErrorCode

CONFIGS_VERSION = 1
BROKER = 4


@dataclass(frozen=True, slots=True)
class Served:
    """What one broker serves."""

    versions: Mapping[int, tuple[int, int]]
    """The first and the last version of each API, by its key."""
    properties: frozenset[str]

    def lack_of_request(self, api_key: int, version: int) -> str | None:
        """Returns why it does not serve a request; None if it does."""
        first, last = self.versions.get(api_key, (0, -1))
        if first <= version <= last:
            return None
        name = APIS[api_key].name
        if last < first:
            return f"it does not serve {name}"
        return f"it serves {name} in versions {first} to {last}, not {version}"

    def lack_of_property(self, settings: Sequence[str]) -> str | None:
        """Returns which property of `name=value` settings it does not know; None if it knows all."""
        names = (setting.partition("=")[0] for setting in settings)
        unknown = next((name for name in names if name not in self.properties), None)
        return f"it does not know {unknown}" if unknown else None


def served_by(peer: Peer) -> Served:
    """Ask a broker.

    Raises:
        RuntimeError: it does not describe its properties.
    """
    resource = DescribeConfigsResource(
        resource_type=BROKER, resource_name=NODE_ID, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=(resource,))
    with connected(peer.port, peer.tls) as connection:
        versions = answer_in(connection.ask(api_versions_request()), ApiVersionsResponse, 0)
        answer = connection.ask(frame_of(request, CONFIGS_VERSION))
        (described,) = answer_in(answer, DescribeConfigsResponse, CONFIGS_VERSION).results
    if described.error_code != ErrorCode.NONE:
        raise RuntimeError(f"the broker does not describe itself: {described.error_message}")
    return Served(
        {each.api_key: (each.min_version, each.max_version) for each in versions.api_keys},
        frozenset(config.name for config in described.configs),
    )
