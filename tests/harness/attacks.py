"""Clients that use up as much of a broker as they can; each attack runs in its own process.

    python -m tests.harness.attacks PORT NAME      runs until it is killed

An attack prints a line when its first bytes are sent, and ends by itself only if it failed. It only
sends what any client may send. `names()` lists the attacks: the largest request for each array of each
API (`large_requests.py`), many small ones for an API without arrays, and those that need more than one
request to do harm.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cramjam

from bench.base.raw_protocol import create_topic_request
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.record_batch import Record, build_batch
from protocol.wire.api_keys import APIS, Api, ApiKey
from tests.harness.large_requests import ATTACKED, array_paths, large_request, small_request
from tests.harness.raw_client import encode_request
from tests.harness.raw_connection import ConnectionEnded, RawConnection

CHECKOUT = Path(__file__).resolve().parents[2]
LARGE_ELEMENTS = 100_000
SMALL = "many-small"
"""The attack with an API whose requests have no array."""
SMALL_REQUESTS = 1_000
BOMB_BYTES = 127 << 20
CONNECTIONS = 20
HALF_FRAMES = 500
CHURN_BYTES = 8 << 20
COMPACTED = "attacked-compacted"
BUSY = "attacked-busy"
SILENCE = 60.0
"""How many seconds an attacker waits for an answer."""

UNDER_WAY = threading.Event()
"""Set once the first bytes of this process's attack are sent."""


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def produce_frame(topic: str, batches: list[bytes], *, acks: int = 1) -> bytes:
    views = (memoryview(batch) for batch in batches)
    data = tuple(PartitionProduceData(index=0, records=view) for view in views)
    request = ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=30_000,
        topic_data=(TopicProduceData(name=topic, partition_data=data),),
    )
    return framed(encode_request(request, 9, 1))


def send_again_and_again(port: int, frame: bytes) -> None:
    """Send the frame again after each answer, also across restarts of the broker."""
    while True:
        with (
            contextlib.suppress(OSError, ConnectionEnded),
            RawConnection(port, timeout=SILENCE) as c,
        ):
            while True:
                c.send(frame)
                UNDER_WAY.set()
                c.receive()
        time.sleep(0.05)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def bombs(port: int) -> None:
    """Send one request with sixty batches of a few kilobytes, each of which inflates to 127 MiB."""
    records = bytes(cramjam.zstd.compress(bytes(BOMB_BYTES)))
    batch = bytearray(build_batch([Record(offset=0, timestamp=0, key=b"k", value=b"v")]))
    send_again_and_again(port, produce_frame(COMPACTED, [_with_zstd(batch, records)] * 60))


def _with_zstd(batch: bytearray, records: bytes) -> bytes:
    """Returns a batch with a valid header over these records, compressed."""
    from crc32c import crc32c

    head = bytearray(batch[:61])
    head[22] = 4  # the codec, in the low byte of the attributes
    struct.pack_into(">i", head, 8, len(head) + len(records) - 12)
    whole = head + records
    struct.pack_into(">I", whole, 17, crc32c(bytes(whole[21:])))
    return bytes(whole)


def parked_fetches(port: int) -> None:
    """Fetch a busy topic with one partition named 100,000 times, waiting for more bytes than arrive."""
    wanted = FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1, current_leader_epoch=-1
    )
    request = FetchRequest(
        max_wait_ms=2_000,
        min_bytes=1 << 30,
        max_bytes=1 << 30,
        topics=(FetchTopic(topic=BUSY, partitions=(wanted,) * LARGE_ELEMENTS),),
    )
    batch = build_batch([Record(offset=0, timestamp=0, key=b"k", value=b"v")])
    frames = [framed(encode_request(request, 12, 1)), produce_frame(BUSY, [bytes(batch)])]
    in_threads(2, lambda number: send_again_and_again(port, frames[number]))


def pipelines(port: int) -> None:
    """Keep many produce requests in flight on twenty connections."""
    batch = build_batch(
        [Record(offset=n, timestamp=0, key=b"k", value=bytes(100)) for n in range(100)]
    )
    frame = produce_frame(BUSY, [bytes(batch)])

    def run(_: int) -> None:
        while True:
            with (
                contextlib.suppress(OSError, ConnectionEnded),
                RawConnection(port, timeout=SILENCE) as connection,
            ):
                drain = threading.Thread(target=_discard, args=(connection.socket,), daemon=True)
                drain.start()
                while True:
                    connection.send(frame * 50)
                    UNDER_WAY.set()

    in_threads(CONNECTIONS, run)


def _discard(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while sock.recv(1 << 20):
            pass


def half_frames(port: int) -> None:
    """Open many connections that begin a large frame and send no more."""
    begun = struct.pack(">i", 64 << 20) + bytes(200_000)
    while True:
        held = []
        for _ in range(HALF_FRAMES):
            with contextlib.suppress(OSError):
                sock = socket.create_connection(("127.0.0.1", port), timeout=5)
                held.append(sock)
                sock.setblocking(False)
                sock.send(begun)
        UNDER_WAY.set()
        time.sleep(3)
        for sock in held:
            sock.close()


def unread_answers(port: int) -> None:
    """Open connections that request much and read nothing."""
    api = APIS[ApiKey.DESCRIBE_CONFIGS]
    frame = framed(large_request(api, ("resources",), "same", 2_000).frame)
    while True:
        held = []
        for _ in range(CONNECTIONS):
            with contextlib.suppress(OSError):
                sock = socket.create_connection(("127.0.0.1", port), timeout=5)
                held.append(sock)
                sock.sendall(frame * 3)
        UNDER_WAY.set()
        time.sleep(3)
        for sock in held:
            sock.close()


def broken_connections(port: int) -> None:
    """Connect, send part of a frame of several megabytes, and disconnect; repeat."""
    part = struct.pack(">i", 32 << 20) + bytes(2 << 20)
    while True:
        with contextlib.suppress(OSError):
            sock = socket.create_connection(("127.0.0.1", port), timeout=5)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.sendall(part)
            sock.close()
            UNDER_WAY.set()


def many_partitions(port: int) -> None:
    """Request more partitions than may be created at a time."""
    topic = CreatePartitionsTopic(name=ATTACKED, count=10_001, assignments=None)
    request = CreatePartitionsRequest(topics=(topic,), timeout_ms=1_000, validate_only=False)
    send_again_and_again(port, framed(encode_request(request, 3, 1)))


def topic_churn(port: int) -> None:
    """Create topics, fill them and delete them."""
    batch = build_batch([Record(offset=0, timestamp=0, key=b"k", value=bytes(1 << 20))])
    number = 0
    while True:
        number += 1
        name = f"churn-{os.getpid()}-{number}"
        delete = DeleteTopicsRequest(topic_names=(name,), timeout_ms=5_000)
        with (
            contextlib.suppress(OSError, ConnectionEnded),
            RawConnection(port, timeout=SILENCE) as c,
        ):
            for frame in (
                create_topic_request(name, 2, {}),
                *[produce_frame(name, [bytes(batch)])] * (CHURN_BYTES >> 20),
                framed(encode_request(delete, 5, 1)),
            ):
                c.send(frame)
                UNDER_WAY.set()
                c.receive()


def small_requests(port: int, api: Api) -> None:
    """Send an API's smallest request a thousand times at once, again and again."""
    request = framed(small_request(api).frame) * SMALL_REQUESTS
    while True:
        with (
            contextlib.suppress(OSError, ConnectionEnded),
            RawConnection(port, timeout=SILENCE) as connection,
        ):
            drain = threading.Thread(target=_discard, args=(connection.socket,), daemon=True)
            drain.start()
            while True:
                connection.send(request)
                UNDER_WAY.set()
        time.sleep(0.05)


SPECIAL: dict[str, Callable[[int], None]] = {
    "bombs": bombs,
    "parked-fetches": parked_fetches,
    "pipelines": pipelines,
    "half-frames": half_frames,
    "unread-answers": unread_answers,
    "broken-connections": broken_connections,
    "many-partitions": many_partitions,
    "topic-churn": topic_churn,
}


def names() -> Iterator[str]:
    """Yields the name of every attack."""
    yield from SPECIAL
    for api in APIS.values():
        for path in array_paths(api.request_type, api.version_max):
            for kind in ("same", "distinct"):
                yield f"{api.name}/{'.'.join(path)}/{kind}"
        if not any(array_paths(api.request_type, api.version_max)):
            yield f"{api.name}/{SMALL}"


def attack(port: int, name: str) -> None:
    """Run one attack. It does not end by itself."""
    if name in SPECIAL:
        SPECIAL[name](port)
        return
    api_name, path, *kinds = name.split("/")
    (api,) = (each for each in APIS.values() if each.name == api_name)
    if path == SMALL:
        small_requests(port, api)
    (kind,) = kinds
    request = large_request(api, tuple(path.split(".")), kind, LARGE_ELEMENTS)
    send_again_and_again(port, framed(request.frame))


@contextmanager
def attacking(port: int, name: str) -> Iterator[None]:
    """Run an attack in its own process during the `with` block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.harness.attacks", str(port), name],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"under way\n"
        yield
        assert process.poll() is None, f"the attack {name} ended by itself"
    finally:
        process.kill()
        process.communicate()


def main() -> None:
    _, port, name = sys.argv
    threading.excepthook = _end_with_failure
    threading.Thread(target=_say_when_under_way, daemon=True).start()
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    attack(int(port), name)


def _say_when_under_way() -> None:
    UNDER_WAY.wait()
    print("under way", flush=True)  # noqa: T201


def _end_with_failure(failure: threading.ExceptHookArgs) -> None:
    """End the process if one thread failed, because the rest is no longer the attack."""
    traceback.print_exception(failure.exc_value)
    os._exit(1)


def _end_with_standard_input() -> None:
    """End the process when the test that started it is gone."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
