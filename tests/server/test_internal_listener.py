"""The listener of `inter.broker.listener.name`: what brokers do there needs ClusterAction."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.config.rows import broker_rows
from server.security.acls import CLUSTER_NAME, Operation, ResourceType
from tests.harness.authorized_broker import allow, authorizing_broker, set_acls
from tests.harness.certificates import Certificates
from tests.harness.raw_client import RawClient
from tests.harness.sasl_login import plain_login
from tests.harness.served_broker import ServedBroker

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' user_standby="standby-secret" user_alice="alice-secret";'
)
SUBJECT = "User:CN={},OU=Data,O=Example"
"""The principal of a certificate."""


async def written(client: RawClient) -> int:
    """Returns the error code for a marker that only brokers write."""
    marker = WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=False,
        topics=(WritableTxnMarkerTopic(name="orders", partition_indexes=(0,)),),
        coordinator_epoch=0,
    )
    answer = await client.call(
        WriteTxnMarkersRequest(markers=(marker,)), 1, WriteTxnMarkersResponse
    )
    return answer.markers[0].topics[0].partitions[0].error_code


async def allow_only(served: ServedBroker, principal: str) -> None:
    rule = allow(ResourceType.CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION, principal)
    await set_acls(served, [rule])


async def test_a_broker_logs_in_by_sasl_and_needs_cluster_action(tmp_path: Path) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
        "inter_broker_listener_name": "INTERNAL",
        "sasl_enabled_mechanisms": "PLAIN",
        "listener_name_internal_plain_sasl_jaas_config": JAAS,
    }
    async with authorizing_broker(tmp_path, **settings) as served:
        await served.create("orders")
        await allow_only(served, "User:standby")
        codes = []
        for user in ("standby", "alice"):
            client = await served.connect("INTERNAL")
            await plain_login(client, f"\0{user}\0{user}-secret".encode())
            codes.append(await written(client))

        rows = {row.name: row.value for row in broker_rows(served.broker.configs)}

    assert codes == [ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert rows["inter.broker.listener.name"] == "INTERNAL"


@pytest.mark.parametrize(
    ("name", "code"),
    [("standby", ErrorCode.NONE), ("alice", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)],
)
async def test_a_broker_shows_a_certificate_and_needs_cluster_action(
    tmp_path: Path, name: str, code: ErrorCode
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INTERNAL:SSL",
        "inter_broker_listener_name": "INTERNAL",
        "ssl_keystore_location": str(certificates.broker()),
        "ssl_truststore_location": str(certificates.authority_file),
        "listener_name_internal_ssl_client_auth": "required",
    }
    async with authorizing_broker(tmp_path / "data", **settings) as served:
        await served.create("orders")
        await allow_only(served, SUBJECT.format("standby"))
        shown = certificates.trust(certificates.client(name))
        client = await RawClient.connect(*served.broker.addresses["INTERNAL"], tls=shown)
        found = await written(client)
        client.close()

    assert found == code
