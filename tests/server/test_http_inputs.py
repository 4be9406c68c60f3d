"""The broker answers any input to the HTTP listener without an internal error.

The inputs are generated from the broker's route table, so that new routes are included.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metrics import http_connections
from tests.harness.examples import examples
from tests.harness.steered_broker import SteeredBroker, steered_broker

ANSWER_SECONDS = 20
LEASE = b"/v1/compaction/topics/orders/partitions/0/lease"
LONG_NUMBER = b"9" * 5000


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[SteeredBroker]:
    async with steered_broker(tmp_path, log_cleaner_remote_enable="true") as steered:
        await steered.served.create("orders", 2, cleanup_policy="compact")
        await steered.produce_dirty("orders")
        await steered.finished(await steered.post("/topics/orders/now"))
        yield steered


@pytest.fixture
def hasty(broker: SteeredBroker, monkeypatch: pytest.MonkeyPatch) -> SteeredBroker:
    """A broker that does not wait long for the rest of a request."""
    monkeypatch.setattr(http_connections, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(http_connections, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(http_connections, "SWEEP_SECONDS", 0.02)
    return broker


@dataclass(frozen=True, slots=True)
class Sent:
    """Returns the bytes of a request."""

    method: bytes
    target: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes = b""

    def encoded(self) -> bytes:
        lines = [self.method + b" " + self.target + b" HTTP/1.1"]
        lines += [name + b": " + value for name, value in self.headers]
        lines.append(b"Connection: close")
        return b"\r\n".join(lines) + b"\r\n\r\n" + self.body


async def statuses(broker: SteeredBroker, data: bytes) -> list[int]:
    """Send bytes. Returns the status of each answer, once the broker has closed the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.served.broker.http_port)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            writer.write(data)
            answers = b""
            while chunk := await reader.read(1 << 16):
                answers += chunk
                if b"text/event-stream" in answers:
                    break  # It never ends.
    except ConnectionError:
        return []
    finally:
        writer.close()
    return [int(each) for each in re.findall(rb"HTTP/1\.[01] (\d{3}) ", answers)]


async def routes(broker: SteeredBroker) -> list[tuple[str, str]]:
    """Returns the method and path of each route in the broker's table."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.served.broker.http_port)
    writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    _, _, text = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return [(method, path) for method, path in map(str.split, text.splitlines())]


def token(directory: Path) -> bytes:
    return (directory / "remote-cleaning.token").read_bytes().strip()


SEGMENTS = st.one_of(
    st.sampled_from(
        [b"orders", b"0", b"1", b"-1", b"%ff", b"%00", b"%2f", b"%d9%a3", b"%c2%b2", LONG_NUMBER]
    ),
    st.binary(min_size=1, max_size=8).map(lambda raw: b"".join(b"%%%02x" % byte for byte in raw)),
)
QUERY_NAMES = st.sampled_from(
    [b"topic", b"partition", b"limit", b"force", b"key", b"key_hex", b"end_offset", b"x"]
)
QUERIES = st.lists(st.tuples(QUERY_NAMES, SEGMENTS), max_size=3).map(
    lambda pairs: b"&".join(name + b"=" + value for name, value in pairs)
)
RAW = st.binary(max_size=12).map(lambda raw: raw.translate(None, b"\r\n\0"))
HOSTS = st.one_of(
    st.just(b"127.0.0.1"),
    st.just(b"localhost:9644"),
    st.sampled_from([b"", b"[::1", b"[", b"evil.example", b"\xff"]),
    RAW,
)
ORIGINS = st.one_of(st.sampled_from([b"http://[", b"http://\xff", b"null", b"", b"//"]), RAW)
AUTHORIZATIONS = st.one_of(
    st.just(b"Bearer <token>"), st.sampled_from([b"Bearer \xff\xfe", b"", b"Bearer"]), RAW
)
OTHERS = st.sampled_from(
    [
        (b"Content-Encoding", b"deflate"),
        (b"Content-Encoding", b"gzip"),
        (b"Content-Type", b"multipart/form-data; boundary=x"),
        (b"Content-Type", b"\xff; charset=\xff"),
        (b"Accept-Encoding", b"gzip"),
        (b"Accept-Encoding", b"gzip;q=x, \xff"),
        (b"Expect", b"100-continue"),
        (b"Expect", b"\xff"),
        (b"Cookie", b'a="\xff; ;=;'),
        (b"If-Modified-Since", b"\xff"),
        (b"Range", b"bytes=9-1"),
        (b"Upgrade", b"websocket"),
        (b"Connection", b"Upgrade"),
    ]
)
BODIES = st.one_of(
    st.just(b""),
    st.binary(max_size=64),
    st.sampled_from([b"{}", b"[" * 100_000, b'{"lease": ' + LONG_NUMBER + b"}", b'"\\ud800"']),
)


@st.composite
def requests(draw: st.DrawFn, table: Sequence[tuple[str, str]], its_token: bytes) -> Sent:
    """Generates requests for existing routes, with some parts wrong."""
    method, path = draw(st.sampled_from(table))
    target = re.sub(rb"\{\w+\}", lambda _: draw(SEGMENTS), path.encode())
    query = draw(QUERIES)
    headers = [(b"Host", draw(HOSTS))]
    if draw(st.booleans()):
        headers.append((b"Origin", draw(ORIGINS)))
    authorization = draw(AUTHORIZATIONS).replace(b"<token>", its_token)
    headers.append((b"Authorization", authorization))
    headers += draw(st.lists(OTHERS, max_size=2))
    body = draw(BODIES)
    headers.append((b"Content-Length", b"%d" % len(body)))
    return Sent(
        draw(st.sampled_from([method.encode(), b"GET", b"POST", b"HEAD", b"OPTIONS"])),
        target + (b"?" + query if query else b""),
        headers,
        body,
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(400))
@given(data=st.data())
async def test_no_request_for_a_route_makes_the_broker_fail(
    broker: SteeredBroker, tmp_path: Path, data: st.DataObject
) -> None:
    table = [*await routes(broker), ("GET", "/nothing"), ("GET", "/v1/{nothing}")]
    sent = data.draw(requests(table, token(tmp_path)))

    answered = await statuses(broker, sent.encoded())

    assert all(status < 500 for status in answered), answered


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(200))
@given(
    raw=st.one_of(
        st.binary(max_size=200),
        st.lists(
            st.sampled_from(
                [
                    b"GET ", b"POST ", b"/metrics", b"http://[", b"*", b" HTTP/1.1\r\n",
                    b" HTTP/9.9\r\n",
                    b"Host: 127.0.0.1\r\n", b"Host: a\r\nHost: b\r\n", b"\r\n", b"\n", b"\0",
                    b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n",
                    b"Content-Length: -1\r\n",
                    b"5\r\nhello\r\n", b"zz\r\n", b"0\r\n\r\n", b"CONNECT a:1", b"/v1/compaction/pause",
                    LEASE + b"/x/commit",
                ]
            ),
            max_size=14,
        ).map(b"".join),
    )
)  # fmt: skip
async def test_no_bytes_make_the_broker_fail(hasty: SteeredBroker, raw: bytes) -> None:
    answered = await statuses(hasty, raw)

    assert all(status < 500 for status in answered), answered


@pytest.mark.parametrize(
    ("method", "target", "header", "status"),
    [
        (b"GET", b"/v1/compaction/jobs/" + LONG_NUMBER, None, 404),
        (b"GET", b"/v1/compaction/history?limit=" + LONG_NUMBER, None, 400),
        (b"GET", b"/v1/compaction/history?partition=" + LONG_NUMBER, None, 400),
        (b"POST", b"/v1/compaction/topics/orders/digest?end_offset=" + LONG_NUMBER, None, 400),
        (b"POST", b"/v1/compaction/topics/orders/keys?top=" + LONG_NUMBER, None, 400),
        (b"POST", b"/v1/compaction/topics/orders/partitions/" + LONG_NUMBER + b"/now", None, 404),
        (b"GET", b"/v1/compaction", (b"Origin", b"http://["), 403),
        (b"POST", LEASE, (b"Authorization", b"Bearer \xff"), 401),
    ],
)  # fmt: skip
async def test_inputs_that_once_made_the_broker_fail_are_refused(
    broker: SteeredBroker,
    method: bytes,
    target: bytes,
    header: tuple[bytes, bytes] | None,
    status: int,
) -> None:
    headers = [(b"Host", b"127.0.0.1"), *([header] if header else [])]

    assert await statuses(broker, Sent(method, target, headers).encoded()) == [status]


@pytest.mark.parametrize("encoding", [b"deflate", b"gzip"])
async def test_no_route_fails_by_a_body_that_cannot_be_inflated(
    broker: SteeredBroker, tmp_path: Path, encoding: bytes
) -> None:
    body = bytes(5)
    headers = [
        (b"Host", b"127.0.0.1"),
        (b"Authorization", b"Bearer " + token(tmp_path)),
        (b"Content-Encoding", encoding),
        (b"Content-Length", b"%d" % len(body)),
    ]
    for method, path in await routes(broker):
        target = re.sub(r"{(\w+)}", r"\1", path.replace("{partition}", "0")).encode()
        answered = await statuses(broker, Sent(method.encode(), target, headers, body).encoded())
        assert all(status < 500 for status in answered), (method, path)
        if (method, path) in WITH_BODIES:
            assert answered == [400], (method, path)


WITH_BODIES = {("PUT", "/v1/links/{link}"), ("PATCH", "/v1/links/{link}")}


async def test_every_route_is_behind_the_host_guard(broker: SteeredBroker) -> None:
    foreign = [(b"Host", b"evil.example:9644"), (b"Content-Length", b"0")]
    table = [*await routes(broker), ("GET", "/nothing")]
    assert len(table) > 20

    for method, path in table:
        target = path.replace("{topic}", "orders").replace("{partition}", "0").encode()
        answered = await statuses(broker, Sent(method.encode(), target, foreign).encoded())
        assert answered == [403], (method, path)


async def test_a_name_in_http_hosts_is_served(tmp_path: Path) -> None:
    async with steered_broker(tmp_path, http_hosts="kompakt.monitoring.svc,Broker") as broker:
        for host in (b"kompakt.monitoring.svc:9644", b"broker"):
            asked = Sent(b"GET", b"/metrics", [(b"Host", host)])
            assert await statuses(broker, asked.encoded()) == [200]
