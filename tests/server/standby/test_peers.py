"""Which term a peer leads in: over real connections, to leaders, fenced brokers and others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from protocol.messages.fetch import FetchResponse
from server.client.access import Access
from server.security.acls import CLUSTER_NAME, Operation, ResourceType
from server.standby import peers as peers_module
from server.standby.peer_answers import Peer, PeerFound, PeerLost
from server.standby.peers import Peers, access_to_peers, peer_of
from tests.harness.authorized_broker import allow, authorizing_broker, set_acls
from tests.harness.broker_process import free_ports
from tests.harness.certificates import Certificates
from tests.harness.fencing import INTERNAL, fence
from tests.harness.served_broker import ServedBroker, serving_broker

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' user_peer="peer-secret" user_alice="alice-secret";'
)


def address_of(served: ServedBroker, listener: str = "INTERNAL") -> str:
    return ":".join(map(str, served.broker.addresses[listener]))


async def asked(
    served: ServedBroker,
    *,
    listener: str = "INTERNAL",
    access: Access | None = None,
    cluster_id: str | None = None,
) -> Peer:
    cluster = served.broker.node.cluster_id if cluster_id is None else cluster_id
    peers = Peers(
        addresses=(address_of(served, listener),),
        access=access or Access(),
        cluster_id=cluster,
        own_term=0,
    )
    (found,) = await peers.ask()
    return found


async def test_a_leader_says_its_term_and_remembers_no_follower(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **INTERNAL) as served:
        await served.create("orders")

        found = await asked(served)

        term = served.broker.metadata_log.term
        assert found == PeerFound(address=address_of(served), term=term, leads=True)
        assert served.broker.followers.all() == []


async def test_a_fenced_broker_says_that_it_does_not_lead(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **INTERNAL) as served:
        await served.create("orders")
        await fence(served)

        found = await asked(served)

        term = served.broker.metadata_log.term
        assert found == PeerFound(address=address_of(served), term=term, leads=False)


async def test_a_broker_of_another_cluster_does_not_count(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **INTERNAL) as served:
        found = await asked(served, cluster_id="another")

        assert str(found) == f"{address_of(served)}: belongs to another cluster"


async def test_a_listener_for_clients_does_not_count(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **INTERNAL) as served:
        found = await asked(served, listener="PLAINTEXT")

        assert isinstance(found, PeerLost)
        assert "answers UNKNOWN_TOPIC_ID for the metadata's log" in found.reason
        assert "inter.broker.listener.name" in found.reason


async def test_a_port_without_a_listener_is_lost_at_once() -> None:
    (port,) = free_ports(1)
    peers = Peers(addresses=(f"127.0.0.1:{port}",), access=Access(), cluster_id="c", own_term=1)

    (found,) = await peers.ask()

    assert str(found) == f"no broker answers at 127.0.0.1:{port} (Connection refused)"


@asynccontextmanager
async def silent() -> AsyncIterator[str]:
    """Yields the address of a server that accepts connections and never answers."""

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(ignore, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_peers_that_never_answer_cost_one_bound_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers_module, "ANSWER_SECONDS_MAX", 0.1)
    async with silent() as one, silent() as other:
        peers = Peers(addresses=(one, other), access=Access(), cluster_id="c", own_term=1)
        loop = asyncio.get_running_loop()
        began = loop.time()

        found = await peers.ask()

        assert [str(each) for each in found] == [
            f"{address}: no answer within 0.1 s" for address in (one, other)
        ]
        assert loop.time() - began < 30


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(FetchResponse(responses=()), id="nothing"),
        pytest.param(FetchResponse(error_code=-1, responses=()), id="an_error"),
        pytest.param(FetchResponse(error_code=9_999, responses=()), id="an_unknown_error"),
    ],
)
def test_an_answer_that_says_nothing_does_not_count(answer: FetchResponse) -> None:
    assert isinstance(peer_of("b:1", answer), PeerLost)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("user", "is_found"), [("peer", True), ("alice", False)])
async def test_it_logs_in_over_tls_as_its_file_says_and_needs_cluster_action(
    tmp_path: Path, user: str, is_found: bool
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_SSL",
        "inter_broker_listener_name": "INTERNAL",
        "ssl_keystore_location": str(certificates.broker()),
        "sasl_enabled_mechanisms": "PLAIN",
        "listener_name_internal_plain_sasl_jaas_config": JAAS,
    }
    file = tmp_path / "peer.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={certificates.authority_file}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' username="{user}" password="{user}-secret";\n'
    )
    async with authorizing_broker(tmp_path / "data", **settings) as served:
        rule = allow(ResourceType.CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION, "User:peer")
        await set_acls(served, [rule])

        found = await asked(served, access=access_to_peers(str(file)))

    assert isinstance(found, PeerFound) is is_found, found
