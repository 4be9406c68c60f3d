"""What the server tells its observers, as verbs; plain counts that a scrape reads.

All verbs are called on the event loop and cost well under a microsecond: a dictionary look-up and
an addition. Prometheus' own objects exist at scrape time only (`metrics/collector.py`).
"""

from __future__ import annotations

from collections import defaultdict

from metrics.histogram import FINE_SECONDS, REQUEST_SECONDS, SECONDS, Histogram


class TopicCounts:
    """What was appended to and read from one topic."""

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
    """The connections of one listener."""

    __slots__ = ("opened", "protocol_errors", "refused", "unclosed")

    def __init__(self) -> None:
        self.opened = 0
        self.unclosed = 0
        self.refused = 0
        self.protocol_errors = 0


class ServerProbe:
    """Counts what the server says. Owned by the broker; read by the collector."""

    __slots__ = (
        "bytes_received_total", "bytes_sent_total", "cold_reads", "listeners", "logs_synced",
        "produce_seconds", "requests", "sync_seconds", "topics",
    )  # fmt: skip

    def __init__(self) -> None:
        self.topics: defaultdict[str, TopicCounts] = defaultdict(TopicCounts)
        self.listeners: defaultdict[str, ListenerCounts] = defaultdict(ListenerCounts)
        self.requests: defaultdict[str, Histogram] = defaultdict(
            lambda: Histogram(REQUEST_SECONDS, shown=SECONDS)
        )
        self.produce_seconds = Histogram(FINE_SECONDS)
        """Of produces again, finely, for the latency guard."""
        self.bytes_received_total = 0
        self.bytes_sent_total = 0
        self.sync_seconds = Histogram()
        self.logs_synced = 0
        self.cold_reads = 0

    def connection_opened(self, listener: str) -> None:
        """A connection was accepted."""
        counts = self.listeners[listener]
        counts.opened += 1
        counts.unclosed += 1

    def connection_closed(self, listener: str) -> None:
        """A connection that was accepted is gone."""
        self.listeners[listener].unclosed -= 1

    def connection_refused(self, listener: str) -> None:
        """A connection met a limit and was closed at once; it does not count as opened."""
        self.listeners[listener].refused += 1

    def protocol_error(self, listener: str) -> None:
        """A connection is closed because its peer broke the protocol."""
        self.listeners[listener].protocol_errors += 1

    def bytes_received(self, count: int) -> None:
        """Bytes of requests came in."""
        self.bytes_received_total += count

    def bytes_sent(self, count: int) -> None:
        """Bytes of responses went out."""
        self.bytes_sent_total += count

    def request_completed(self, api: str, seconds: float) -> None:
        """A response is ready to be sent, so long after its request was there."""
        self.requests[api].observe(seconds)
        if api == "Produce":
            self.produce_seconds.observe(seconds)

    def batch_appended(self, topic: str, records: int, bytes_: int) -> None:
        """A batch was appended."""
        counts = self.topics[topic]
        counts.produces += 1
        counts.records_in += records
        counts.bytes_in += bytes_

    def batch_refused(self, topic: str, reason: str, records: int) -> None:
        """A batch was refused with the error code `reason`, for a topic that exists."""
        counts = self.topics[topic]
        counts.produces += 1
        counts.produces_failed += 1
        counts.refused_by_reason[reason] += records

    def partition_fetched(self, topic: str, bytes_: int, *, is_failed: bool) -> None:
        """A fetch is answered for a partition of a topic that exists."""
        counts = self.topics[topic]
        counts.fetches += 1
        counts.fetches_failed += is_failed
        counts.bytes_out += bytes_

    def segment_deleted(self, topic: str, reason: str, bytes_: int) -> None:
        """A segment was deleted, by retention or because DeleteRecords moved the log start."""
        counts = self.topics[topic]
        counts.deleted_segments_by_reason[reason] += 1
        counts.deleted_bytes_by_reason[reason] += bytes_

    def sync_round_completed(self, seconds: float, logs: int) -> None:
        """A sync round made `logs` logs durable."""
        self.sync_seconds.observe(seconds)
        self.logs_synced += logs

    def topic_deleted(self, topic: str) -> None:
        """A topic is gone, and its counts with it: their number stays bounded by the topics."""
        self.topics.pop(topic, None)

    def cold_read(self) -> None:
        """A read has to wait for the disk, in a thread."""
        self.cold_reads += 1
