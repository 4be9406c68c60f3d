from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from server.security.tls_alerts import AlertContext, alert_of
from tests.harness.certificates import Certificates

FATAL = b"\x15\x03\x03\x00\x02\x02"
"""An alert that is not encrypted, without its last byte, which says why."""


@pytest.fixture
def context(tmp_path: Path) -> AlertContext:
    made = AlertContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(Certificates(tmp_path).broker())
    return made


def failed(context: AlertContext, received: bytes) -> ssl.SSLError:
    """Returns the error of a handshake with these first bytes of a client."""
    incoming = ssl.MemoryBIO()
    incoming.write(received)
    handshake = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    with pytest.raises(ssl.SSLError) as raised:
        handshake.do_handshake()
    return raised.value


def test_a_failed_handshake_hands_over_its_alert(context: AlertContext) -> None:
    assert alert_of(failed(context, b"\x16\x03\x01\xff\xff" + bytes(9))) == FATAL + b"\x16"


@pytest.mark.parametrize("received", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x12\0\x12" + bytes(16)])
def test_a_client_without_tls_gets_none(context: AlertContext, received: bytes) -> None:
    assert alert_of(failed(context, received)) == b""


def test_a_handshake_that_goes_on_has_none(context: AlertContext) -> None:
    error = failed(context, b"\x16\x03\x01")

    assert isinstance(error, ssl.SSLWantReadError)
    assert alert_of(error) == b""


def test_another_error_has_none() -> None:
    assert alert_of(ConnectionResetError()) == b""
