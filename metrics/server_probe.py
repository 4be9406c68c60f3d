"""Counts the server's events, with one method per event; a scrape reads the counts.

All methods run on the event loop and cost well under a microsecond: a dictionary look-up and
an addition. Prometheus' own objects exist at scrape time only (`metrics/collector.py`).
"""

from __future__ import annotations

from collections import defaultdict

from metrics.histogram import FINE_SECONDS, REQUEST_SECONDS, SECONDS, Histogram


class TopicCounts:
    """Counts of appends to and reads from one topic."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "deleted_bytes_by_reason",
        "deleted_segments_by_reason",
        "fetches",
        "fetches_failed",
        "produces",
        "produces_failed",
        "records_in",
        "refused_by_reason",
    )

    def __init__(self) -> None:
        self.records_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.produces = 0
        self.produces_failed = 0
        self.fetches = 0
        self.fetches_failed = 0
        self.refused_by_reason: defaultdict[str, int] = defaultdict(int)
        self.deleted_segments_by_reason: defaultdict[str, int] = defaultdict(int)
        self.deleted_bytes_by_reason: defaultdict[str, int] = defaultdict(int)


class ListenerCounts:
    """Counts of the connections of one listener."""

    __slots__ = (
        "delayed", "delayed_seconds", "expired", "handshakes_failed", "opened", "protocol_errors",
        "refused", "unclosed",
    )  # fmt: skip

    def __init__(self) -> None:
        self.opened = 0
        self.unclosed = 0
        self.refused = 0
        self.protocol_errors = 0
        self.handshakes_failed = 0
        self.delayed = 0
        self.delayed_seconds = 0.0
        self.expired = 0


class LoginCounts:
    """Counts of the logins by one mechanism on one listener."""

    __slots__ = ("failed", "failed_again", "succeeded", "succeeded_again")

    def __init__(self) -> None:
        self.succeeded = 0
        self.failed = 0
        self.succeeded_again = 0
        """Logins of clients that were authenticated before (KIP-368)."""
        self.failed_again = 0


class ThrottleCounts:
    """Counts of the pauses because of one quota."""

    __slots__ = ("count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0


class ServerProbe:
    """Counts the server's events. Owned by the broker; read by the collector."""

    __slots__ = (
        "bytes_received_total", "bytes_sent_total", "cold_reads", "listeners", "logins", "logs_synced",
        "produce_seconds", "requests", "sync_seconds", "throttles", "topics",
    )  # fmt: skip

    def __init__(self) -> None:
        self.topics: defaultdict[str, TopicCounts] = defaultdict(TopicCounts)
        self.listeners: defaultdict[str, ListenerCounts] = defaultdict(ListenerCounts)
        self.logins: defaultdict[tuple[str, str], LoginCounts] = defaultdict(LoginCounts)
        """By listener and mechanism."""
        self.requests: defaultdict[str, Histogram] = defaultdict(
            lambda: Histogram(REQUEST_SECONDS, shown=SECONDS)
        )
        self.produce_seconds = Histogram(FINE_SECONDS)
        """Times of produces once more, with finer bounds, for the latency guard."""
        self.throttles: defaultdict[str, ThrottleCounts] = defaultdict(ThrottleCounts)
        self.bytes_received_total = 0
        self.bytes_sent_total = 0
        self.sync_seconds = Histogram()
        self.logs_synced = 0
        self.cold_reads = 0

    def connection_opened(self, listener: str) -> None:
        """Count an accepted connection."""
        counts = self.listeners[listener]
        counts.opened += 1
        counts.unclosed += 1

    def connection_closed(self, listener: str) -> None:
        """Count the end of an accepted connection."""
        self.listeners[listener].unclosed -= 1

    def connection_refused(self, listener: str) -> None:
        """Count a connection that was closed because of a limit. Those beyond a limit on their number
        are not counted as opened."""
        self.listeners[listener].refused += 1

    def connection_delayed(self, listener: str, seconds: float) -> None:
        """Count a connection that is not served for a while because of a bound on their rate."""
        counts = self.listeners[listener]
        counts.delayed += 1
        counts.delayed_seconds += seconds

    def protocol_error(self, listener: str) -> None:
        """Count a connection that is closed because its client violated the protocol."""
        self.listeners[listener].protocol_errors += 1

    def expired_session_killed(self, listener: str) -> None:
        """Count a connection that is closed because its client did not authenticate again in time."""
        self.listeners[listener].expired += 1

    def login_completed(self, listener: str, mechanism: str, *, is_again: bool) -> None:
        """Count a successful login."""
        counts = self.logins[listener, mechanism]
        if is_again:
            counts.succeeded_again += 1
        else:
            counts.succeeded += 1

    def login_refused(self, listener: str, mechanism: str, *, is_again: bool) -> None:
        """Count a refused login; the mechanism is empty if the client asked for one not enabled."""
        counts = self.logins[listener, mechanism]
        if is_again:
            counts.failed_again += 1
        else:
            counts.failed += 1

    def client_throttled(self, quota: str, seconds: float) -> None:
        """Count a pause of a client that has exceeded a quota."""
        counts = self.throttles[quota]
        counts.count += 1
        counts.seconds += seconds

    def handshake_failed(self, listener: str) -> None:
        """Count a connection that is closed because its TLS handshake failed; it was never opened."""
        self.listeners[listener].handshakes_failed += 1

    def bytes_received(self, count: int) -> None:
        """Count received bytes of requests."""
        self.bytes_received_total += count

    def bytes_sent(self, count: int) -> None:
        """Count sent bytes of responses."""
        self.bytes_sent_total += count

    def request_completed(self, api: str, seconds: float) -> None:
        """Count a request whose response was ready `seconds` after the request's frame was complete."""
        self.requests[api].observe(seconds)
        if api == "Produce":
            self.produce_seconds.observe(seconds)

    def batch_appended(self, topic: str, records: int, bytes_: int) -> None:
        """Count an appended batch."""
        counts = self.topics[topic]
        counts.produces += 1
        counts.records_in += records
        counts.bytes_in += bytes_

    def batch_refused(self, topic: str, reason: str, records: int) -> None:
        """Count a batch that was refused with the error code `reason`, for a topic that exists."""
        counts = self.topics[topic]
        counts.produces += 1
        counts.produces_failed += 1
        counts.refused_by_reason[reason] += records

    def partition_fetched(self, topic: str, bytes_: int, *, is_failed: bool) -> None:
        """Count a partition in a fetch's answer, of a topic that exists."""
        counts = self.topics[topic]
        counts.fetches += 1
        counts.fetches_failed += is_failed
        counts.bytes_out += bytes_

    def segment_deleted(self, topic: str, reason: str, bytes_: int) -> None:
        """Count a segment deleted by retention or because DeleteRecords moved the log start."""
        counts = self.topics[topic]
        counts.deleted_segments_by_reason[reason] += 1
        counts.deleted_bytes_by_reason[reason] += bytes_

    def sync_round_completed(self, seconds: float, logs: int) -> None:
        """Count a sync round that made `logs` logs durable."""
        self.sync_seconds.observe(seconds)
        self.logs_synced += logs

    def topic_deleted(self, topic: str) -> None:
        """Forget a deleted topic's counts: the number of topics bounds the number of counts."""
        self.topics.pop(topic, None)

    def cold_read(self) -> None:
        """Count a read that has to wait for the disk, in a thread."""
        self.cold_reads += 1
