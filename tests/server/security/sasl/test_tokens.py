"""Logins by OAUTHBEARER over real sockets: keys from files and by HTTP, and their change."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import copied
from server.security.sasl import issuer_keys
from tests.harness.sasl_login import handshake, sasl_broker, send_token
from tests.harness.served_broker import ServedBroker
from tests.harness.token_issuer import TokenIssuer, client_message

ERROR = '{"status":"invalid_token"}'


def properties(url: str, **more: str) -> dict[str, str]:
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "10",
        **more,
    }


async def log_in(served: ServedBroker, token: str) -> int:
    """Returns the error code of a login: NONE or SASL_AUTHENTICATION_FAILED."""
    client = await served.connect("SASL")
    assert (await handshake(client, "OAUTHBEARER")).error_code == ErrorCode.NONE
    response = await send_token(client, client_message(token))
    if copied(response.auth_bytes):
        assert (response.error_code, copied(response.auth_bytes)) == (0, ERROR.encode())
        response = await send_token(client, b"\x01")
        assert response.error_message == ERROR
        assert await client.is_closed()
    return response.error_code


async def test_keys_from_a_file(tmp_path: Path) -> None:
    issuer = TokenIssuer()
    url = issuer.write(tmp_path / "keys.json")
    async with sasl_broker(tmp_path / "data", **properties(url)) as served:
        assert await log_in(served, issuer.token()) == ErrorCode.NONE
        assert await log_in(served, TokenIssuer().token()) == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await log_in(served, "nonsense") == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_session_ends_with_its_token(tmp_path: Path) -> None:
    issuer = TokenIssuer()
    url = issuer.write(tmp_path / "keys.json")
    async with sasl_broker(tmp_path / "data", **properties(url)) as served:
        client = await served.connect("SASL")
        await handshake(client, "OAUTHBEARER")
        response = await send_token(client, client_message(issuer.token(lifetime_s=100)))
        assert 90_000 < response.session_lifetime_ms <= 100_000


async def test_keys_by_http_and_a_new_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token with an unknown key makes the broker fetch the keys, but not each such token."""
    issuer = TokenIssuer()
    with issuer.served() as url:
        async with sasl_broker(tmp_path, **properties(url)) as served:
            assert await log_in(served, issuer.token()) == ErrorCode.NONE
            issuer.new_key()
            for _ in range(3):
                assert await log_in(served, issuer.token()) != ErrorCode.NONE
            assert issuer.fetches == 1
            monkeypatch.setattr(issuer_keys, "UNKNOWN_KEY_SECONDS", 0.0)
            async with asyncio.timeout(10):
                while await log_in(served, issuer.token()) != ErrorCode.NONE:
                    pass
            assert issuer.fetches > 1


async def test_an_issuer_that_is_away_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker starts, says what is wrong, and accepts tokens once it has the keys."""
    issuer = TokenIssuer()
    path = tmp_path / "keys.json"
    async with sasl_broker(tmp_path / "data", **properties(path.as_uri())) as served:
        assert await log_in(served, issuer.token()) == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "cannot read the keys of token issuer" in caplog.text
        issuer.write(path)
        async with asyncio.timeout(10):
            while await log_in(served, issuer.token()) != ErrorCode.NONE:
                pass


async def test_keys_are_read_again_in_time(tmp_path: Path) -> None:
    issuer = TokenIssuer()
    with issuer.served() as url:
        often = {"sasl.oauthbearer.jwks.endpoint.refresh.ms": "1000"}
        async with sasl_broker(tmp_path, **properties(url, **often)) as served:
            old = issuer.token()
            assert await log_in(served, old) == ErrorCode.NONE
            issuer.new_key()
            issuer.forget_old_keys()
            async with asyncio.timeout(10):
                while await log_in(served, old) == ErrorCode.NONE:
                    pass
            assert await log_in(served, issuer.token()) == ErrorCode.NONE


@pytest.mark.parametrize("content", [b"", b"{}", b" " * (issuer_keys.KEYS_BYTES_MAX + 1)])
def test_a_key_set_that_cannot_be_used_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(content)
    with pytest.raises(ValueError):
        issuer_keys.fetch_keys(path.as_uri())
