"""The commands' connection to a broker: API versions, and peers that are not brokers."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from cli.base.broker_client import BrokerClient, ask_until_loaded, connected, parse_address
from cli.base.command_end import EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USAGE, CommandFailed
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.wire.api_keys import APIS, ApiKey
from protocol.wire.encode import encode
from protocol.wire.error_codes import ErrorCode

OURS_MAX = APIS[ApiKey.METADATA].version_max

Answer = Callable[[bytes], bytes]


@asynccontextmanager
async def peer(answer: Answer) -> AsyncIterator[str]:
    """Yields the address of a server that answers each frame with `answer(payload)`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while size := await reader.read(4):
            writer.write(answer(await reader.readexactly(struct.unpack(">i", size)[0])))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield "{}:{}".format(*server.sockets[0].getsockname())


def frame(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def versions(*apis: ApiVersion) -> bytes:
    response = ApiVersionsResponse(error_code=0, api_keys=apis)
    return b"".join(map(bytes, encode(response, 0)))  # type: ignore[arg-type]


def of(key: ApiKey, low: int, high: int) -> ApiVersion:
    return ApiVersion(api_key=key, min_version=low, max_version=high)


def speaking(metadata: tuple[int, int], asked: list[int]) -> Answer:
    """A broker that serves some versions of Metadata and records the requested ones."""

    def answer(request: bytes) -> bytes:
        key, version, correlation_id = struct.unpack_from(">hhi", request)
        if key == ApiKey.API_VERSIONS:
            return frame(correlation_id, versions(of(ApiKey.METADATA, *metadata)))
        asked.append(version)
        body = encode(MetadataResponse(brokers=(), topics=()), version)
        tags = b"\0" if version >= MetadataResponse.flexible_since else b""
        return frame(correlation_id, tags + b"".join(map(bytes, body)))  # type: ignore[arg-type]

    return answer


async def ask(client: BrokerClient) -> MetadataResponse:
    return await client.call(MetadataRequest(topics=None), MetadataResponse)


@pytest.mark.parametrize(
    ("theirs", "version"),
    [((0, 1), 1), ((4, OURS_MAX + 9), OURS_MAX), ((9, 9), 9)],
    ids=["older", "newer", "one"],
)
async def test_the_highest_version_that_both_have_is_asked_in(
    theirs: tuple[int, int], version: int
) -> None:
    asked: list[int] = []
    async with peer(speaking(theirs, asked)) as address, connected(address) as client:
        assert (await ask(client)).topics == ()

    assert asked == [version]


async def test_an_api_without_a_common_version_is_named_in_the_error() -> None:
    async with (
        peer(speaking((OURS_MAX + 1, OURS_MAX + 9), [])) as address,
        connected(address) as client,
    ):
        assert not client.serves(ApiKey.METADATA)
        with pytest.raises(CommandFailed, match="does not support Metadata") as refused:
            await ask(client)

    assert refused.value.exit_code == EXIT_FAILED


@pytest.mark.parametrize(
    "bytes_back",
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="http"),
        pytest.param(struct.pack(">i", -1), id="negative_size"),
        pytest.param(frame(99, versions()), id="answer_to_something_else"),
        pytest.param(frame(1, b"\0"), id="cut_off"),
        pytest.param(frame(1, versions() + b"\0"), id="bytes_to_spare"),
    ],
)
async def test_a_peer_with_an_invalid_answer_is_not_a_broker(bytes_back: bytes) -> None:
    async with peer(lambda _: bytes_back) as address:
        with pytest.raises(CommandFailed, match="is not a Kafka broker") as refused:
            async with connected(address):
                pass

    assert refused.value.exit_code == EXIT_UNREACHABLE


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("localhost:9093", ("localhost", 9093)),
        ("localhost", ("localhost", 9092)),
        ("[::1]:9093", ("::1", 9093)),
        ("[::1]", ("::1", 9092)),
    ],
)
def test_an_address_has_a_port_or_kafkas(text: str, parsed: tuple[str, int]) -> None:
    assert parse_address(text) == parsed


@pytest.mark.parametrize("text", ["a:b", ":9092", "a:99999", "http://a:1", "a:¹"])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(CommandFailed) as refused:
        parse_address(text)

    assert refused.value.exit_code == EXIT_USAGE


async def test_a_broker_that_still_reads_its_groups_is_asked_again() -> None:
    answers = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]

    async def ask() -> ErrorCode:
        return answers.pop(0)

    assert await ask_until_loaded(ask, int) == ErrorCode.NONE
    answers.insert(0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert await ask_until_loaded(ask, int, seconds_max=0) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
