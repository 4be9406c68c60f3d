"""The frames of a client's connection, also after its end."""

from __future__ import annotations

import asyncio

import pytest

from server.client.frames import Frames


async def connected_to_one_that_closes() -> Frames:
    def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    loop = asyncio.get_running_loop()
    _, frames = await loop.create_connection(Frames, host, port)
    with pytest.raises(EOFError):
        await frames.receive()
    server.close()
    return frames


async def test_a_request_over_a_connection_that_the_peer_has_closed_fails_as_its_answer_would() -> (
    None
):
    frames = await connected_to_one_that_closes()
    with pytest.raises(EOFError):
        frames.send(b"request")


async def test_a_request_over_a_connection_that_was_closed_here_fails() -> None:
    frames = await connected_to_one_that_closes()
    frames.close()
    with pytest.raises((EOFError, ConnectionResetError)):
        frames.send(b"request")
