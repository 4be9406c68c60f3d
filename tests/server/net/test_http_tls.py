"""The HTTP endpoint with TLS: certificates of both sides, a changed one, and clients without TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from server.net import http_tls
from tests.harness.authorized_broker import authorizing_broker
from tests.harness.certificates import Certificates
from tests.harness.connection_server import until
from tests.harness.raw_client import RawClient
from tests.harness.served_broker import ServedBroker

ALICE = "User:CN=alice,OU=Data,O=Example"


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certificates")


@asynccontextmanager
async def https_broker(
    folder: Path, certificates: Certificates, **properties: str
) -> AsyncIterator[ServedBroker]:
    settings = {
        "http_listener": "https://127.0.0.1:0",
        "listener_name_http_ssl_keystore_location": str(certificates.broker()),
        "listener_name_http_ssl_truststore_location": str(certificates.authority_file),
        "log_cleaner_enable": "true",
        "super_users": ALICE,
    }
    async with authorizing_broker(folder / "data", **settings | properties) as served:
        yield served


async def status_of(served: ServedBroker, path: str, context: ssl.SSLContext) -> int:
    """Returns the status of the answer to a GET on a new connection."""
    url = f"https://127.0.0.1:{served.broker.http_port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as response:
        await response.read()
        return response.status


def failures(served: ServedBroker) -> int:
    return served.broker.probe.listeners["HTTP"].handshakes_failed


async def test_clients_reach_the_endpoint_over_tls_only(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with https_broker(tmp_path, certificates) as served:
        assert await status_of(served, "/health/ready", certificates.trust()) == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await status_of(served, "/health/ready", ssl.create_default_context())

        port = served.broker.http_port
        assert port is not None
        client = await RawClient.connect("127.0.0.1", port)
        client.send_bytes(b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await client._reader.read() == b""
        client.close()
        assert "HTTP" in served.broker.listening.certificate_expiries()


async def test_a_certificate_names_the_client(tmp_path: Path, certificates: Certificates) -> None:
    required = {"listener_name_http_ssl_client_auth": "required"}
    async with https_broker(tmp_path, certificates, **required) as served:
        alice, bob = (certificates.trust(certificates.client(name)) for name in ("alice", "bob"))

        assert await status_of(served, "/v1/compaction", alice) == 200
        assert await status_of(served, "/v1/compaction", bob) == 403
        with pytest.raises((aiohttp.ClientError, ssl.SSLError, OSError)):
            await status_of(served, "/v1/compaction", certificates.trust())
        await until(lambda: failures(served) > 0)


async def test_where_certificates_are_only_requested_a_client_without_is_anonymous(
    tmp_path: Path, certificates: Certificates
) -> None:
    requested = {"listener_name_http_ssl_client_auth": "requested"}
    async with https_broker(tmp_path, certificates, **requested) as served:
        assert await status_of(served, "/v1/compaction", certificates.trust()) == 403
        assert await status_of(served, "/health/live", certificates.trust()) == 200


async def test_a_new_certificate_is_shown_without_a_restart(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with https_broker(tmp_path, certificates) as served:
        before = served.broker.listening.tls_of("HTTP")
        assert before is not None
        first = before.context
        certificates.broker()
        assert served.broker.listening._tls is not None
        await served.broker.listening._tls.reload_changed()

        assert before.context is not first
        assert await status_of(served, "/health/live", certificates.trust()) == 200


async def test_handshakes_without_end_are_bounded(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_tls, "UNFINISHED_MAX", 3)
    async with https_broker(tmp_path, certificates) as served:
        port = served.broker.http_port
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        assert await reader.read() == b""
        for _, each in (*silent, (reader, writer)):
            each.close()
        await until(lambda: failures(served) >= 4)
        assert await status_of(served, "/health/live", certificates.trust()) == 200
