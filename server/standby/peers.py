"""Asks the peers of a broker in which term they lead the metadata's log (docs/standby.md).

The request is a Fetch of that log, on a peer's internal listener, that claims a term before all others.
The leader refuses it, says its own term, and remembers no follower.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.wire.error_codes import ErrorCode
from replog.entry import FIRST_INDEX, NO_TERM
from server.client.access import Access, access_of
from server.client.broker_client import BrokerClient, connected
from server.client.client_properties import read_properties
from server.client.errors import ClientFailed
from server.metadata.store import METADATA_TOPIC, METADATA_TOPIC_ID
from server.standby.peer_answers import Peer, PeerFound, PeerLost, counted

ANSWER_SECONDS_MAX = 2.0
"""How long a start waits for its peers."""
NO_LEADER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The other brokers of `standby.peers`, and how to reach them."""

    addresses: Sequence[str]
    access: Access
    cluster_id: str
    own_term: int

    async def ask(self) -> list[Peer]:
        """Returns what each peer says, after `ANSWER_SECONDS_MAX` at the latest."""
        found = await asyncio.gather(*map(self._ask, self.addresses))
        return [counted(each, self.own_term) for each in found]

    async def _ask(self, address: str) -> Peer:
        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS_MAX),
                connected(address, self.access) as client,
            ):
                answer = await client.call(term_request(self.cluster_id), FetchResponse)
        except TimeoutError:
            return PeerLost(address=address, reason=f"no answer within {ANSWER_SECONDS_MAX:g} s")
        except ClientFailed as error:
            return PeerLost(address=address, reason=str(error))
        return peer_of(address, answer)


def access_to_peers(file: str) -> Access:
    """Returns the access that the client properties in `standby.peers.config` describe. Blocks.

    Raises:
        Misconfigured: a file cannot be read, or the properties cannot work.
    """
    access = access_of(read_properties(Path(file))) if file else Access()
    if access.login is not None:
        # It takes long to import, which must not count as a peer's time to answer.
        importlib.import_module("kafka.net.sasl")
    return access


async def is_fenced(client: BrokerClient, cluster_id: str) -> bool:
    """Returns whether a broker has started fenced: then its logs no longer grow, and it removes nothing.

    Raises:
        ClientFailed: it does not answer.
    """
    found = peer_of("", await client.call(term_request(cluster_id), FetchResponse))
    return isinstance(found, PeerFound) and not found.leads


def term_request(cluster_id: str) -> FetchRequest:
    """Returns the request for a leader's term."""
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=NO_TERM,
        fetch_offset=FIRST_INDEX,
        last_fetched_epoch=NO_TERM,
        partition_max_bytes=0,
    )
    topic = FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=(partition,))
    return FetchRequest(
        cluster_id=cluster_id, max_wait_ms=0, min_bytes=0, max_bytes=0, topics=(topic,)
    )


def peer_of(address: str, answer: FetchResponse) -> Peer:
    """Returns what an answer says about the peer."""
    if answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
        return PeerLost(address=address, reason="belongs to another cluster")
    partitions = [each for topic in answer.responses for each in topic.partitions]
    if len(partitions) != 1 or answer.error_code:
        return _refused(address, answer.error_code)
    data: PartitionData = partitions[0]
    leader = data.current_leader
    if data.error_code != ErrorCode.FENCED_LEADER_EPOCH or leader.leader_epoch <= NO_TERM:
        return _refused(address, data.error_code)
    return PeerFound(address=address, term=leader.leader_epoch, leads=leader.leader_id != NO_LEADER)


def _refused(address: str, code: int) -> PeerLost:
    name = ErrorCode.from_wire(code).name
    return PeerLost(
        address=address,
        reason=f"answers {name} for the metadata's log: is that the listener of its"
        " inter.broker.listener.name, and may our user do ClusterAction there?",
    )
