"""The transport of a connection with TLS, over a pair of sockets whose other end the test holds."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from protocol.wire.frame import FrameBuffer
from server.net import tls_transport
from server.net.tls_handshake import complete
from server.net.tls_transport import TlsTransport
from tests.harness.certificates import Certificates
from tests.harness.connection_server import framed, until

LARGE = bytes(range(256)) * 20_000


class Peer(asyncio.BufferedProtocol):
    """Receives frames, and records what its transport says."""

    def __init__(self) -> None:
        self.frames = FrameBuffer(frame_bytes_max=1 << 30)
        self.received: list[bytes] = []
        self.pauses: list[str] = []
        self.is_connected = False
        self.is_ended = False
        self.lost: list[Exception | None] = []
        self.failure: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.is_connected = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if self.failure is not None:
            raise self.failure
        self.frames.buffer_updated(nbytes)
        while (frame := self.frames.next_frame()) is not None:
            self.received.append(bytes(frame))

    def eof_received(self) -> bool:
        self.is_ended = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.pauses.append("pause")

    def resume_writing(self) -> None:
        self.pauses.append("resume")


class Pair:
    """A transport with its protocol, and the client at the other end."""

    def __init__(self, transport: TlsTransport, peer: Peer, client: ssl.SSLSocket) -> None:
        self.transport, self.peer, self.client = transport, peer, client
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        """Send from the client without holding the loop."""
        await self._loop.run_in_executor(None, self.client.sendall, data)

    async def receive(self, size: int) -> bytes:
        """Receive at the client; less than `size` at the end of the stream."""
        return await self._loop.run_in_executor(None, self._received, size)

    def _received(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size and (piece := self.client.recv(size - len(received))):
            received += piece
        return bytes(received)


@pytest.fixture(params=["TLSv1_2", "TLSv1_3"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    certificates = Certificates(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.broker())
    server.minimum_version = server.maximum_version = ssl.TLSVersion[request.param]
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    connecting = loop.run_in_executor(
        None, lambda: certificates.trust().wrap_socket(theirs, server_hostname="localhost")
    )
    accepted = server.wrap_socket(ours, server_side=True, do_handshake_on_connect=False)
    await complete(accepted)
    peer = Peer()
    transport = TlsTransport(accepted, ("", 0), peer)
    transport.begin()
    client = await connecting
    client.settimeout(30)
    yield Pair(transport, peer, client)
    transport.abort()
    client.close()
    await until(lambda: len(peer.lost) == 1)


async def test_frames_of_every_size_pass_both_ways(pair: Pair) -> None:
    sizes = [0, 1, 4_095, 16_383, 16_384, 16_385, 100_000, 3_000_000]
    for size in sizes:
        await pair.send(framed(LARGE[:size]))
    await until(lambda: len(pair.peer.received) == len(sizes))
    assert pair.peer.received == [LARGE[:size] for size in sizes]

    for size in (1, 16_384, 100_000):
        pair.transport.write(LARGE[:size])
        assert await pair.receive(size) == LARGE[:size]


async def test_an_idle_connection_holds_no_buffer(pair: Pair) -> None:
    for sent in (b"", LARGE):
        await pair.send(framed(sent))
    await until(lambda: len(pair.peer.received) == 2)
    await pair.send(framed(b"small"))
    await until(lambda: len(pair.peer.received) == 3)

    assert pair.peer.frames._received is None
    assert pair.peer.frames._large is None


async def test_half_a_record_holds_no_buffer(pair: Pair) -> None:
    raw = socket.socket(fileno=socket.dup(pair.client.fileno()))
    raw.sendall(b"\x17\x03\x03\x40\x00" + bytes(100))
    for _ in range(10):
        await asyncio.sleep(0)

    assert pair.peer.frames._received is None
    assert not pair.peer.lost
    raw.close()


async def test_a_paused_connection_receives_nothing_until_it_resumes(pair: Pair) -> None:
    pair.transport.pause_reading()
    await pair.send(framed(b"later") * 3)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not pair.peer.received

    pair.transport.resume_reading()
    await until(lambda: len(pair.peer.received) == 3)


async def test_a_frame_that_pauses_amid_a_record_continues_after_resume(pair: Pair) -> None:
    updated = pair.peer.buffer_updated

    def pausing(nbytes: int) -> None:
        updated(nbytes)
        pair.transport.pause_reading()
        pair.transport._loop.call_later(0, pair.transport.resume_reading)

    pair.peer.buffer_updated = pausing  # type: ignore[method-assign]
    await pair.send(framed(LARGE[:100_001]) * 5)
    await until(lambda: len(pair.peer.received) == 5)


async def test_it_pauses_its_writer_while_the_peer_reads_nothing(pair: Pair) -> None:
    pair.transport.write(LARGE)
    assert pair.peer.pauses == ["pause"]

    assert await pair.receive(len(LARGE)) == LARGE
    await until(lambda: pair.peer.pauses == ["pause", "resume"])


async def test_close_sends_what_was_written_and_ends_tls(pair: Pair) -> None:
    pair.transport.write(LARGE)
    pair.transport.close()
    assert pair.transport.is_closing()

    assert await pair.receive(len(LARGE) + 1) == LARGE
    pair.client.close()
    await until(lambda: pair.peer.lost == [None])


async def test_a_peer_that_keeps_sending_does_not_lose_the_last_answer(pair: Pair) -> None:
    pair.transport.write(b"answer")
    pair.transport.close()
    with suppress(OSError):
        await pair.send(LARGE[:60_000])

    assert await pair.receive(7) == b"answer"


async def test_a_peer_that_never_closes_is_cut_off(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_transport, "SHUTDOWN_SECONDS", 0.0)
    pair.transport.write(LARGE)
    pair.transport.close()
    await until(lambda: pair.peer.lost == [None])


async def test_the_end_of_the_stream_closes(pair: Pair) -> None:
    await asyncio.get_running_loop().run_in_executor(None, pair.client.close)
    await until(lambda: pair.peer.lost == [None])
    assert pair.peer.is_ended


async def test_a_damaged_record_closes_with_the_reason(pair: Pair) -> None:
    raw = socket.socket(fileno=socket.dup(pair.client.fileno()))
    raw.sendall(b"\x17\x03\x03\x00\x30" + bytes(48))
    await until(lambda: len(pair.peer.lost) == 1)
    assert isinstance(pair.peer.lost[0], ssl.SSLError)
    raw.close()


async def test_a_mistake_of_the_protocol_closes_its_connection(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    pair.peer.failure = LookupError("a mistake")
    await pair.send(framed(b"x"))
    await until(lambda: pair.peer.lost == [pair.peer.failure])
    assert "TLS connection: failed unexpectedly" in caplog.text


async def test_abort_is_harmless_twice_and_drops_what_was_not_sent(pair: Pair) -> None:
    pair.transport.write(LARGE)
    pair.transport.abort()
    pair.transport.abort()
    pair.transport.write(b"late")
    pair.transport.pause_reading()
    pair.transport.resume_reading()
    await until(lambda: pair.peer.lost == [None])
