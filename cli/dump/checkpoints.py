"""Prints and verifies the checkpoint of a coordinator's partition.

The verification loads the partition twice, as a start does, from the files: with the checkpoint, and
without. Both must give the same state. Both states are in memory for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cleaner.checkpoints.reading import CheckpointReader
from cleaner.checkpoints.validity import GAP, LastBatch, LogPlace, objection
from cli.base.text import bytes_members
from cli.dump.kinds import Kind
from cli.dump.section import Row, Section
from protocol.records.batch_header import read_header
from protocol.records.offset_commits import OffsetScan
from protocol.records.record_batch import read_records
from protocol.wire.errors import ProtocolError
from protocol.wire.numbers import Offset
from server.coordination.coordinator_topic import OFFSETS_TOPIC
from server.coordination.transactions.loading import TransactionScan
from storage.batches.chunks import Chunk, read_chunks
from storage.batches.validate import DECOMPRESSED_BYTES_MAX
from storage.files.errors import DamagedFile, FormatFromTheFuture, StorageError
from storage.files.files import FileSystem
from storage.files.paths import (
    DOWNLOAD,
    INSTALL,
    LOG,
    MANIFEST,
    PART,
    STANDBY_PROPERTIES,
    checkpoint_path,
    join,
)
from storage.formats.log_identity import LogIdentity
from storage.formats.manifest import Manifest, decode
from storage.segment.listed_file import open_listed
from storage.verify.findings import Check, Finding, Findings


def coordinator_checkpoint(fs: FileSystem, path: str) -> Section:
    """Reads a checkpoint's header, footer and records. Raises DamagedFile, FormatFromTheFuture."""
    with CheckpointReader(fs, path) as reader:
        facts = {
            "topic_id": str(reader.header.topic_id),
            "partition": reader.header.partition,
            "start_offset": reader.header.start_offset,
            "end_offset": reader.header.end_offset,
            "last_epoch": reader.header.last_epoch,
            "last_crc": reader.header.last_crc,
            "bytes": reader.size,
            "records": reader.footer.records,
            "set_digest": f"{reader.footer.digest:032x}",
        }
    return Section(
        kind=Kind.COORDINATOR_CHECKPOINT.value, path=path, facts=facts, rows=_rows(fs, path)
    )


def _rows(fs: FileSystem, path: str) -> Iterator[Row]:
    with CheckpointReader(fs, path) as reader:
        for piece in reader.pieces():
            position = 0
            while position < len(piece):
                header = read_header(piece, position)
                for record in read_records(
                    piece, position, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX
                ):
                    yield {
                        "offset": record.offset,
                        "producer_id": header.producer_id,
                        **bytes_members("key", record.key),
                        **bytes_members("value", record.value),
                    }
                position += header.size_bytes


def verify_checkpoint(fs: FileSystem, identity: LogIdentity) -> tuple[Finding, ...]:
    """Verify the checkpoint of a log, if it has one."""
    path = checkpoint_path(identity.directory)
    findings = Findings()
    for suffix in (DOWNLOAD, INSTALL):
        if fs.exists(path + suffix):
            text = "a checkpoint of the leader that the standby has not taken yet"
            findings.note(Check.CHECKPOINT, path + suffix, text)
    if fs.exists(path + PART):
        findings.note(
            Check.CHECKPOINT, path + PART, "an unfinished checkpoint; the next replaces it"
        )
    if not fs.exists(path):
        return findings.all()
    try:
        _compare(fs, identity, path, findings)
    except (DamagedFile, FormatFromTheFuture, ProtocolError) as error:
        findings.warn(Check.CHECKPOINT, path, f"{error}; a start reads the whole log instead")
    except StorageError as error:
        findings.error(Check.CHECKPOINT, path, str(error))
    return findings.all()


def _compare(fs: FileSystem, identity: LogIdentity, path: str, findings: Findings) -> None:
    """Load with the checkpoint and without, and compare."""
    manifest = decode(fs.read_bytes(join(identity.directory, MANIFEST)), identity.directory)
    whole, whole_end = _new_scan(identity), 0
    last_batch: LastBatch | None = None
    with CheckpointReader(fs, path) as reader:
        header = reader.header
        scan = _new_scan(identity)
        scan.sum_records(True)
        for piece in reader.pieces():
            scan.feed(piece)
        scan.sum_records(False)
        if scan.digest != reader.footer.digest:
            findings.warn(Check.CHECKPOINT, path, "the digest of its records differs")
        scan.expect(header.end_offset)
        for batch in _batches(fs, identity, manifest):
            whole_end = whole.feed(batch)
            if whole_end > header.end_offset:
                scan.feed(batch)
            elif whole_end == header.end_offset:
                its = read_header(batch)
                last_batch = LastBatch(epoch=its.leader_epoch, crc=its.crc)
    place = LogPlace(
        topic_id=identity.topic_id,
        partition=identity.topic_partition.partition,
        start_offset=manifest.log_start_offset,
        high_watermark=Offset(whole_end),
        last_batch=last_batch,
    )
    is_copy = _is_copy(fs, identity)
    reason = objection(header, place, is_copy=is_copy) or (None if scan.is_gapless else GAP)
    if reason is not None and is_copy:
        text = (
            f"the log does not continue it: {reason}; the standby drops the log at its next start"
        )
        findings.warn(Check.CHECKPOINT, path, text)
    elif reason is not None:
        text = f"it does not count: {reason}; the next start reads the whole log"
        findings.note(Check.CHECKPOINT, path, text)
    elif is_copy and manifest.log_start_offset > 0:
        return  # Only the checkpoint has the state before the log.
    elif _state(scan) != _state(whole):
        text = "with it, a load finds another state than in the log; remove it while no broker runs"
        findings.error(Check.CHECKPOINT, path, text)


def _is_copy(fs: FileSystem, identity: LogIdentity) -> bool:
    """Returns whether a log is in a standby's directory."""
    above = identity.directory.rpartition("/")[0].rpartition("/")[0]
    return fs.exists(join(above, STANDBY_PROPERTIES))


def _new_scan(identity: LogIdentity) -> OffsetScan | TransactionScan:
    if identity.topic_partition.topic == OFFSETS_TOPIC:
        return OffsetScan(decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    return TransactionScan()


def _state(scan: OffsetScan | TransactionScan) -> tuple[Any, ...]:
    """Returns the state that a scan has found, without empty dictionaries."""
    if isinstance(scan, TransactionScan):
        return (list(scan.values.items()),)
    pending = {producer: _filled(groups) for producer, groups in scan.pending.items()}
    kept = {producer: groups for producer, groups in pending.items() if groups}
    return _filled(scan.offsets), kept, list(scan.others.items())


def _filled(groups: dict[str, dict[str, dict[int, Any]]]) -> dict[tuple[str, str, int], Any]:
    return {
        (group, topic, partition): each
        for group, topics in groups.items()
        for topic, partitions in topics.items()
        for partition, each in partitions.items()
    }


def _batches(fs: FileSystem, identity: LogIdentity, manifest: Manifest) -> Iterator[memoryview]:
    """Yields the sound batches of the listed segments; `verify_log` reports the others."""
    for row in manifest.segments:
        file = open_listed(fs, identity.directory, row, LOG)
        try:
            for part in read_chunks(file, 0, file.size):
                if isinstance(part, Chunk):
                    for each in part.batches:
                        yield part.data[each.position : each.position + each.size_bytes]
        finally:
            file.close()
