"""Control records: records that a broker itself writes into a log, beside the clients' records.

    key      version int16 (0) | type int16
    value    version int16 (0) | coordinator epoch int32       in a transaction's marker

Integers are big-endian. A control batch holds exactly one; no consumer sees it. A later version
adds fields at the end, so trailing bytes are legal.

Source: KIP-98; Apache Kafka, ControlRecordType.java, EndTransactionMarker.java.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

from protocol.records.compression import Buffer
from protocol.wire.errors import InvalidRecord

_KEY = struct.Struct(
    ">"
    "h"  # version
    "h"  # type
)
_MARKER_VALUE = struct.Struct(
    ">"
    "h"  # version
    "i"  # coordinator epoch
)
_VERSION = 0


class ControlType(enum.IntEnum):
    """Type of a control record. On disk: values never change."""

    ABORT = 0
    COMMIT = 1
    # Reserved: Kafka's quorum writes these into its metadata log.
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1
    """A type of a later release: readers keep it and ignore it. Never written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMarker:
    """The end of a producer's transaction in this partition."""

    type: ControlType
    """COMMIT or ABORT."""
    coordinator_epoch: int
    """Epoch of the coordinator that decided; a marker with an older epoch comes from a fenced one."""


def read_control_type(key: Buffer | None) -> ControlType:
    """Returns the type of a control record from its key; `UNKNOWN` for a type of a later release.

    Raises:
        InvalidRecord: there is no key, it is too short, or its version is negative.
    """
    if key is None or len(key) < _KEY.size:
        raise InvalidRecord("control record without a whole key")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"control record key of version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN


def read_transaction_marker(key: Buffer | None, value: Buffer | None) -> TransactionMarker:
    """Read a COMMIT or ABORT marker.

    Raises:
        InvalidRecord: it is another type of control record, or cut off, or of a negative version.
    """
    control_type = read_control_type(key)
    if control_type not in (ControlType.COMMIT, ControlType.ABORT):
        raise InvalidRecord(f"control record of type {control_type.name} ends no transaction")
    if value is None or len(value) < _MARKER_VALUE.size:
        raise InvalidRecord("transaction marker without a whole value")
    version, coordinator_epoch = _MARKER_VALUE.unpack_from(value)
    if version < 0:
        raise InvalidRecord(f"transaction marker of version {version}")
    return TransactionMarker(type=control_type, coordinator_epoch=coordinator_epoch)


def write_transaction_marker(marker: TransactionMarker) -> tuple[bytes, bytes]:
    """Returns the key and the value of a marker's record."""
    assert marker.type in (ControlType.COMMIT, ControlType.ABORT)
    key = _KEY.pack(_VERSION, marker.type)
    return key, _MARKER_VALUE.pack(_VERSION, marker.coordinator_epoch)
