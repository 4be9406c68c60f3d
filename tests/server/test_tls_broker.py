"""A broker whose clients use TLS: good and bad certificates, slow readers, broken handshakes."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest import mock

import pytest
from cryptography import x509

from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.fetch import FetchResponse
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.config.rows import broker_rows
from server.http import broker_facts
from server.net.connection import Connection
from server.net.listener import ListenError
from server.net.tls_handshake import complete
from tests.harness.certificates import Certificates, as_pkcs12
from tests.harness.connection_server import until
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import (
    ServedBroker,
    batch_of,
    fetch_request,
    only_fetched,
    serving_broker,
)

BOTH = "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"
SECRET = "correct-horse"


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certificates")


@asynccontextmanager
async def serving_tls(
    folder: Path, certificates: Certificates, **properties: str
) -> AsyncIterator[ServedBroker]:
    settings = {"ssl_keystore_location": str(certificates.folder / "broker.pem")}
    certificates.broker()
    async with serving_broker(folder / "data", listeners=BOTH, **settings | properties) as served:
        yield served


async def connect(served: ServedBroker, tls: ssl.SSLContext, *, limit: int = 1 << 26) -> RawClient:
    client = await RawClient.connect(*served.broker.addresses["SSL"], tls=tls, limit=limit)
    served._clients.append(client)
    return client


async def ask(client: RawClient) -> None:
    answer = await client.call(ApiVersionsRequest(), 0, ApiVersionsResponse)
    assert answer.error_code == ErrorCode.NONE


async def only_connection(served: ServedBroker) -> Connection:
    listeners = served.broker.listening._listeners
    assert listeners is not None
    # The client may be ready before the broker has handled the last message of the handshake.
    await until(lambda: bool(listeners._shared.connections))
    (connection,) = listeners._shared.connections
    return connection


async def principal_of_only_connection(served: ServedBroker) -> str:
    return str((await only_connection(served)).principal)


def failures(served: ServedBroker) -> int:
    return served.broker.probe.listeners["SSL"].handshakes_failed


async def test_what_is_produced_is_fetched_over_tls_byte_for_byte(
    tmp_path: Path, certificates: Certificates
) -> None:
    batches = [batch_of(100, value=os.urandom(9000)) for _ in range(8)]
    async with serving_tls(tmp_path, certificates) as served:
        await served.create("t")
        for batch in batches:
            await served.produce("t", batch)
        plain = await served.fetch("t", 0, partition_max_bytes=1 << 26, max_bytes=1 << 26)

        client = await connect(served, certificates.trust())
        request = fetch_request([("t", 0, 0)], partition_max_bytes=1 << 26, max_bytes=1 << 26)
        encrypted = only_fetched(await client.call(request, 12, FetchResponse))

    assert isinstance(plain.records, memoryview)
    assert isinstance(encrypted.records, memoryview)
    assert len(plain.records) > 7_000_000
    assert encrypted.records == plain.records


async def test_a_client_that_reads_slowly_gets_everything_and_pins_nothing_afterwards(
    tmp_path: Path, certificates: Certificates
) -> None:
    """The socket's buffers are small against the answers, so the transport pauses again and again."""
    async with serving_tls(tmp_path, certificates, socket_send_buffer_bytes="65536") as served:
        await served.create("t")
        for _ in range(8):
            await served.produce("t", batch_of(100, value=os.urandom(9000)))
        answers = served.broker.answers
        client = await connect(served, certificates.trust(), limit=1 << 16)
        request = fetch_request([("t", 0, 0)], partition_max_bytes=1 << 26, max_bytes=1 << 26)
        ids = [client.send(request, 12) for _ in range(3)]
        connection = await only_connection(served)
        await until(lambda: connection._outbox is not None and connection._outbox.pending_bytes > 0)

        sizes = []
        for each in ids:
            data = only_fetched(await client.receive(FetchResponse, 12, each))
            assert isinstance(data.records, memoryview)
            sizes.append(len(data.records))
        assert min(sizes) > 7_000_000
        await until(lambda: answers.held_bytes == 0)
        assert connection._outbox is not None
        assert connection._outbox.pending_bytes == 0


async def test_a_client_that_goes_away_amid_an_answer_leaves_nothing_behind(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with serving_tls(tmp_path, certificates, socket_send_buffer_bytes="65536") as served:
        await served.create("t")
        for _ in range(8):
            await served.produce("t", batch_of(100, value=os.urandom(9000)))
        client = await connect(served, certificates.trust(), limit=1 << 16)
        client.send(fetch_request([("t", 0, 0)], partition_max_bytes=1 << 26), 12)
        connection = await only_connection(served)
        await until(lambda: connection._outbox is not None and connection._outbox.pending_bytes > 0)

        client.abort()

        await until(lambda: connection.is_lost)
        await until(lambda: served.broker.answers.held_bytes == 0)
        assert not any(each.files._pins for each in served.log("t").segments)


async def test_a_client_names_itself_by_its_certificate(
    tmp_path: Path, certificates: Certificates
) -> None:
    trust = str(certificates.authority_file)
    auth = {"ssl_client_auth": "required", "ssl_truststore_location": trust}
    async with serving_tls(tmp_path, certificates, **auth) as served:
        client = await connect(served, certificates.trust(certificates.client("alice")))
        await ask(client)

        expected = "User:CN=alice,OU=Data,O=Example"
        assert (await principal_of_only_connection(served)).startswith(expected.rpartition(",")[0])


async def test_a_rule_makes_a_short_name_of_the_certificate(
    tmp_path: Path, certificates: Certificates
) -> None:
    auth = {
        "ssl_client_auth": "required",
        "ssl_truststore_location": str(certificates.authority_file),
        "ssl_principal_mapping_rules": "RULE:^CN=(.*?),OU=.*$/$1/U,DEFAULT",
    }
    async with serving_tls(tmp_path, certificates, **auth) as served:
        await ask(await connect(served, certificates.trust(certificates.client("alice"))))

        assert await principal_of_only_connection(served) == "User:ALICE"


async def test_a_client_whose_certificate_no_rule_knows_is_closed(
    tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    auth = {
        "ssl_client_auth": "required",
        "ssl_truststore_location": str(certificates.authority_file),
        "ssl_principal_mapping_rules": "RULE:^CN=nobody$/x/",
    }
    async with serving_tls(tmp_path, certificates, **auth) as served:
        client = await connect(served, certificates.trust(certificates.client("alice")))
        assert await client.is_closed()
        await until(lambda: failures(served) == 1)

    assert "no rule of ssl.principal.mapping.rules matches CN=alice" in caplog.text


@pytest.mark.parametrize("auth", ["none", "requested"])
async def test_without_a_certificate_a_client_is_anonymous(
    tmp_path: Path, certificates: Certificates, auth: str
) -> None:
    trust = str(certificates.authority_file)
    async with serving_tls(
        tmp_path, certificates, ssl_client_auth=auth, ssl_truststore_location=trust
    ) as served:
        await ask(await connect(served, certificates.trust()))

        assert await principal_of_only_connection(served) == "User:ANONYMOUS"


async def test_a_certificate_of_another_authority_is_refused(
    tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = Certificates(tmp_path / "strangers").client("mallory")
    trust = str(certificates.authority_file)
    async with serving_tls(
        tmp_path, certificates, ssl_client_auth="required", ssl_truststore_location=trust
    ) as served:
        for shown in (stranger, None):
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await ask(await connect(served, certificates.trust(shown)))
        await until(lambda: failures(served) == 2)
        assert not served.broker.listening._listeners._shared.connections  # type: ignore[union-attr]

    # Later ones within a minute are counted, not logged.
    (line,) = [each for each in caplog.messages if "TLS handshake failed" in each]
    assert "the client's certificate is not accepted" in line


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_refused_client_gets_the_alert_that_says_why(
    tmp_path: Path, certificates: Certificates, version: ssl.TLSVersion
) -> None:
    refused = {
        "CERTIFICATE_EXPIRED": certificates.client("old", expired=True),
        "UNKNOWN_CA": Certificates(tmp_path / "strangers").client("mallory"),
    }
    trust = str(certificates.authority_file)
    async with serving_tls(
        tmp_path, certificates, ssl_client_auth="required", ssl_truststore_location=trust
    ) as served:
        for alert, shown in refused.items():
            context = certificates.trust(shown)
            context.maximum_version = version
            with pytest.raises(ssl.SSLError, match=f"ALERT_{alert}"):
                await ask(await connect(served, context))
        await until(lambda: served.broker.listening.limits.count == 0)


async def test_a_refused_client_that_stays_is_closed_after_its_alert(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.net.tls_handshake.ALERT_SECONDS", 0.05)
    async with serving_tls(tmp_path, certificates) as served:
        with socket.create_connection(served.broker.addresses["SSL"]) as staying:
            staying.sendall(b"\x16\x03\x01\xff\xff" + bytes(99))
            await until(lambda: failures(served) == 1)
            await until(lambda: served.broker.listening.limits.count == 0)
            assert staying.recv(99) == b"\x15\x03\x03\x00\x02\x02\x16"


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x12\0\x12" + bytes(16), b"\xff" * 99]
)
async def test_a_client_without_tls_is_closed_and_counted(
    tmp_path: Path, certificates: Certificates, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_tls(tmp_path, certificates) as served:
        client = await RawClient.connect(*served.broker.addresses["SSL"])
        client.send_bytes(sent)
        assert await client._reader.read() == b""
        client.close()
        await until(lambda: failures(served) == 1)
        await ask(await connect(served, certificates.trust()))
        assert served.broker.listening.limits.count == 1

    assert len([each for each in caplog.messages if "TLS handshake failed" in each]) == 1


async def test_tls_on_a_plaintext_port_is_refused_with_a_hint(
    tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_tls(tmp_path, certificates) as served:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await RawClient.connect(*served.broker.addresses["PLAINTEXT"], tls=certificates.trust())
        await until(lambda: served.broker.probe.listeners["PLAINTEXT"].protocol_errors == 1)

    assert "TLS handshake on a listener without TLS" in caplog.text


async def test_a_client_that_dies_in_its_handshake_is_forgotten(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with serving_tls(tmp_path, certificates, ssl_handshake_timeout_ms="300") as served:
        address = served.broker.addresses["SSL"]
        bio, out = ssl.MemoryBIO(), ssl.MemoryBIO()
        hello = certificates.trust().wrap_bio(bio, out, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            hello.do_handshake()
        first = out.read()
        with socket.create_connection(address) as dying, socket.create_connection(address) as mute:
            dying.sendall(first[: len(first) // 2])
            mute.sendall(first)
            await until(lambda: served.broker.listening.limits.count == 2)
            dying.close()
            # The mute one is closed after ssl.handshake.timeout.ms.
            await until(lambda: failures(served) == 2)
        assert served.broker.listening.limits.count == 0


async def test_a_client_that_resets_before_its_handshake_leaves_no_socket(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with serving_tls(tmp_path, certificates) as served:
        client = socket.create_connection(served.broker.addresses["SSL"])
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        await until(lambda: failures(served) == 1)
        # A socket that is not closed fails the test by its ResourceWarning.
        gc.collect()


async def test_a_client_that_closes_right_after_its_handshake_leaves_no_socket(
    tmp_path: Path, certificates: Certificates
) -> None:
    """The broker's session tickets meet a closed socket, which resets the connection."""
    lost: list[Connection] = []
    connection_lost = Connection.connection_lost

    def lose(connection: Connection, exc: Exception | None) -> None:
        lost.append(connection)
        connection_lost(connection, exc)

    async with serving_tls(tmp_path, certificates) as served:
        plain = socket.create_connection(served.broker.addresses["SSL"])
        plain.setblocking(False)
        client = certificates.trust().wrap_socket(
            plain, server_hostname="localhost", do_handshake_on_connect=False
        )
        with client, mock.patch.object(Connection, "connection_lost", lose):
            # The client completes its handshake one message before the broker, and closes at once.
            await complete(client)
            client.close()
            await until(lambda: bool(lost) or bool(failures(served)))
        gc.collect()
        assert failures(served) == 0


async def test_a_stop_does_not_wait_for_unfinished_handshakes(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with serving_tls(tmp_path, certificates, ssl_handshake_timeout_ms="3600000") as served:
        mute = socket.create_connection(served.broker.addresses["SSL"])
        await until(lambda: served.broker.listening.limits.count == 1)
    mute.close()


async def test_a_stop_sends_the_answers_of_requests_that_it_has_received(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with serving_tls(tmp_path, certificates, socket_send_buffer_bytes="65536") as served:
        await served.create("t")
        for _ in range(4):
            await served.produce("t", batch_of(100, value=os.urandom(9000)))
        client = await connect(served, certificates.trust(), limit=1 << 16)
        request = fetch_request([("t", 0, 0)], partition_max_bytes=1 << 26, max_bytes=1 << 26)
        sent = client.send(request, 12)
        connection = await only_connection(served)
        await until(lambda: connection._outbox is not None and connection._outbox.pending_bytes > 0)

        assert served.broker.listening._listeners is not None
        stopping = asyncio.ensure_future(served.broker.listening._listeners.stop(grace_s=20))
        data = only_fetched(await client.receive(FetchResponse, 12, sent))
        assert isinstance(data.records, memoryview)
        assert len(data.records) > 3_000_000
        assert await client.is_closed()
        await stopping


async def test_unfinished_handshakes_count_against_the_limits(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with serving_tls(tmp_path, certificates, max_connections="1") as served:
        with socket.create_connection(served.broker.addresses["SSL"]):
            await until(lambda: served.broker.listening.limits.count == 1)
            second = await RawClient.connect(*served.broker.addresses["SSL"])
            assert await second.is_closed()
            second.close()
        await until(lambda: served.broker.listening.limits.count == 0)
        await ask(await connect(served, certificates.trust()))


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"ssl_keystore_location": ""}, "ssl.keystore.location: listener SSL has TLS and needs"),
        ({"ssl_keystore_location": "/none"}, "cannot read /none: No such file or directory"),
        ({"ssl_client_auth": "required"}, "ssl.client.auth: clients of SSL must show certificates"),
        ({"ssl_cipher_suites": "TLS_NONE"}, "ssl.cipher.suites: OpenSSL has no cipher suite"),
        ({"ssl_principal_mapping_rules": "RULE:("}, "ssl.principal.mapping.rules: RULE:( is not"),
        ({"ssl_keystore_key": "x"}, "set either this file or ssl.keystore.key"),
    ],
)
async def test_a_listener_that_cannot_have_tls_stops_the_start_in_one_sentence(
    tmp_path: Path, certificates: Certificates, properties: dict[str, str], message: str
) -> None:
    with pytest.raises(ListenError) as refused:
        async with serving_tls(tmp_path, certificates, **properties):
            pass

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


async def test_a_locked_store_opens_with_its_password_and_an_error_does_not_show_it(
    tmp_path: Path, certificates: Certificates
) -> None:
    store = {"ssl_keystore_location": str(as_pkcs12(certificates.broker("b.pem"), SECRET))}
    async with serving_tls(tmp_path, certificates, **store, ssl_keystore_password=SECRET) as served:
        await ask(await connect(served, certificates.trust()))

    with pytest.raises(ListenError, match="the password is wrong") as refused:
        async with serving_tls(
            tmp_path, certificates, **store, ssl_keystore_password="not-" + SECRET
        ):
            pass
    assert SECRET not in str(refused.value)


async def test_the_versions_of_tls_are_those_that_are_enabled(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with serving_tls(tmp_path, certificates, ssl_enabled_protocols="TLSv1.2") as served:
        newer = certificates.trust()
        newer.minimum_version = ssl.TLSVersion.TLSv1_3
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await connect(served, newer)
        client = await connect(served, certificates.trust())
        assert client._writer.get_extra_info("ssl_object").version() == "TLSv1.2"


# Certificates that change while the broker runs.


def serial(client: RawClient) -> str:
    shown = client._writer.get_extra_info("ssl_object").getpeercert()
    return str(shown["serialNumber"])


async def test_a_changed_file_gives_new_connections_the_new_certificate(
    tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving_tls(tmp_path, certificates) as served:
        tls = served.broker.listening._tls
        assert tls is not None
        before = await connect(served, certificates.trust())
        await tls.reload_changed()
        same = await connect(served, certificates.trust())
        assert serial(same) == serial(before)

        certificates.broker()
        await tls.reload_changed()

        after = await connect(served, certificates.trust())
        assert serial(after) != serial(before)
        await ask(before)
        await ask(after)


async def test_a_damaged_new_store_is_refused_and_the_old_certificate_stays(
    tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_tls(tmp_path, certificates) as served:
        tls = served.broker.listening._tls
        assert tls is not None
        before = await connect(served, certificates.trust())

        (certificates.folder / "broker.pem").write_text("-----BEGIN nothing")
        await tls.reload_changed()
        assert serial(await connect(served, certificates.trust())) == serial(before)
        (certificates.folder / "broker.pem").unlink()
        await tls.reload_changed()
        assert serial(await connect(served, certificates.trust())) == serial(before)

        assert "listener SSL keeps its certificate: ssl.keystore.location" in caplog.text
        certificates.broker()
        await tls.reload_changed()
        assert serial(await connect(served, certificates.trust())) != serial(before)


async def test_the_metrics_say_when_a_certificate_expires(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with serving_tls(tmp_path, certificates) as served:
        shown = x509.load_pem_x509_certificates((certificates.folder / "broker.pem").read_bytes())
        left = shown[0].not_valid_after_utc.timestamp() - time.time()
        facts = broker_facts(served.broker).certificates_expire_seconds

    assert facts.keys() == {"SSL"}
    assert facts["SSL"] == pytest.approx(left, abs=60)


async def test_the_timer_notices_a_changed_file(tmp_path: Path, certificates: Certificates) -> None:
    async with serving_tls(tmp_path, certificates, ssl_store_check_interval_ms="20") as served:
        before = serial(await connect(served, certificates.trust()))
        certificates.broker()
        async with asyncio.timeout(30):
            while serial(await connect(served, certificates.trust())) == before:
                pass


def alteration(name: str, value: str, broker: str = "1") -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name=broker, configs=(config,))
    return IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)


async def altered(served: ServedBroker, name: str, value: str, broker: str = "1") -> str | None:
    request = alteration(name, value, broker)
    answer = await served.call(request, 1, IncrementalAlterConfigsResponse)
    (response,) = answer.responses
    return response.error_message if response.error_code else None


async def test_clients_set_the_store_of_a_listener_and_a_bad_one_is_refused(
    tmp_path: Path, certificates: Certificates
) -> None:
    name = "listener.name.ssl.ssl.keystore.location"
    other = certificates.broker("other.pem")
    async with serving_tls(tmp_path, certificates) as served:
        before = serial(await connect(served, certificates.trust()))

        refused = await altered(served, name, "/none.pem")
        assert refused == f"{name}: cannot read /none.pem: No such file or directory"
        assert serial(await connect(served, certificates.trust())) == before

        assert await altered(served, name, str(other)) is None
        after = serial(await connect(served, certificates.trust()))
        assert after != before

        for_all = await altered(served, "ssl.keystore.location", str(other))
        assert for_all is not None
        assert "only per-listener using the listener prefix: ssl.keystore.location" in for_all
        cluster = await altered(served, name, str(other), broker="")
        assert cluster == f"Cannot update these configs at default cluster level: {name}"

    async with serving_tls(tmp_path, certificates) as served:
        assert serial(await connect(served, certificates.trust())) == after


async def test_passwords_and_keys_are_neither_shown_nor_logged(
    tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving_tls(tmp_path, certificates, ssl_key_password=SECRET) as served:
        assert (
            await altered(served, "listener.name.ssl.ssl.keystore.password", SECRET + "1") is None
        )

        rows = {row.name: row for row in broker_rows(served.broker.configs)}
        assert "listener.name.ssl.ssl.keystore.password" in rows
        assert not [row for row in rows.values() if SECRET in repr(row)]

    assert "broker configuration of 1" in caplog.text
    assert SECRET not in caplog.text
