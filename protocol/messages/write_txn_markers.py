"""WriteTxnMarkers (key 27): end a producer's transactions in partitions, bypassing the coordinator.

Brokers send it to each other, and operators send it to end a hanging transaction (KIP-664).
Not declared: v2, the version of the transaction (KIP-1228).
Source: WriteTxnMarkersRequest.json, WriteTxnMarkersResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import BOOL, INT16, INT32, INT64, STRING, Message, array, wire, wire_class


@wire_class
class WritableTxnMarkerTopic:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partition_indexes: tuple[int, ...] = wire(array(INT32))


@wire_class
class WritableTxnMarker:
    """A marker, and the partitions to write it to."""

    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    transaction_result: bool = wire(BOOL)
    """True: COMMIT."""
    topics: tuple[WritableTxnMarkerTopic, ...] = wire(array(WritableTxnMarkerTopic))
    coordinator_epoch: int = wire(INT32)


@wire_class
class WriteTxnMarkersRequest(Message):
    """Markers to write."""

    api_key = 27
    versions = (1, 1)
    flexible_since = 1

    markers: tuple[WritableTxnMarker, ...] = wire(array(WritableTxnMarker))


@wire_class
class WritableTxnMarkerPartitionResult:
    """The result for a marker in one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@wire_class
class WritableTxnMarkerTopicResult:
    """The results for a marker in one topic."""

    name: str = wire(STRING)
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = wire(
        array(WritableTxnMarkerPartitionResult)
    )


@wire_class
class WritableTxnMarkerResult:
    """The results for one marker."""

    producer_id: int = wire(INT64)
    topics: tuple[WritableTxnMarkerTopicResult, ...] = wire(array(WritableTxnMarkerTopicResult))


@wire_class
class WriteTxnMarkersResponse(Message):
    """The results for each marker."""

    api_key = 27
    versions = (1, 1)
    flexible_since = 1

    markers: tuple[WritableTxnMarkerResult, ...] = wire(array(WritableTxnMarkerResult))
