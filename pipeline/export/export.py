"""Writes the last values of a topic's keys as a table, from the topic's files, or what changed of it.

    for each partition:  look -> hold -> keys -> offsets of the last records -> parts
    for each part:       the table has its file already, or read -> parse -> write
    then:                one commit of all files, with the offsets

A part whose last records are those of an earlier export has its file in the table (`PartWriter.name`),
so only what changed is read again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pipeline.export.columns.reader import RowReader
from pipeline.export.data_file import DataFile, PartWriter, table_schema
from pipeline.export.log_export import ExportProgress, ExportWork, LogExport, Reading
from pipeline.export.target import Target
from pipeline.offsets.cut import Cut, TableRefused, refuse_other_topics
from pipeline.tables.payload_options import Payload
from storage.files.paths import topic_id_text
from storage.formats.log_identity import LogIdentity

LOGS_HELD_MAX = 2
"""The files of so many partitions are open at once: while one is written, the next is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What an export did."""

    rows: int
    files_written: int
    files_kept: int
    bytes_written: int
    cut: Cut


def export(
    logs: Sequence[LogIdentity],
    reading: Reading,
    target: Target,
    payload: Payload,
    progress: ExportProgress,
) -> Summary:
    """Write a topic's last values as a table, in one commit.

    Args:
        logs: the topic's partitions.

    Raises:
        TableRefused: the table does not fit the options, is not ours, or holds more than these files;
            a key or a value cannot be read; another program has changed the table meanwhile. The table
            is unchanged.
        CorruptBatch, StorageError: a log is damaged, or cannot be read.
        OSError: the table cannot be written.
    """
    reader = RowReader(payload, target.columns())
    schema = table_schema(reader, payload)
    held = target.held()
    topic = logs[0].topic_partition.topic
    if held is not None:
        refuse_other_topics(held, [topic])
    files_before = target.files().values() if held is not None else ()
    known = {each.name: each for each in files_before}
    place = target.begin(schema)
    writer = PartWriter(reader, payload, place.schema)
    work = ExportWork(
        reading=reading, writer=writer, folder=place.folder, known=known, progress=progress
    )
    files: list[DataFile] = []
    try:
        files, offsets = _written(logs, work)
        cut = Cut({topic: offsets}, {topic: topic_id_text(logs[0].topic_id)})
        refuse_older(held, cut)
    except BaseException:
        _remove_new(files, known)
        target.discard()
        raise
    # If this fails, it may have happened nevertheless: then the files are the table.
    target.commit(files, schema, cut)
    new = [each for each in files if known.get(each.name) != each]
    return Summary(
        rows=sum(each.rows for each in files),
        files_written=len(new),
        files_kept=len(files) - len(new),
        bytes_written=sum(each.size for each in new),
        cut=cut,
    )


def refuse_older(held: Cut | None, cut: Cut) -> None:
    """Raise TableRefused if a table holds more of this topic than its files have now."""
    for topic, partition, offset in cut.rows():
        is_same = held is not None and held.topic_ids.get(topic) == cut.topic_ids[topic]
        before = held.offsets[topic].get(partition, 0) if held is not None and is_same else 0
        if before > offset:
            raise TableRefused(
                f"the table holds {topic}-{partition} up to {before}, and these files end at {offset}:"
                " they are older than the table; write to another path"
            )


def _written(
    logs: Sequence[LogIdentity], work: ExportWork
) -> tuple[list[DataFile], dict[int, int]]:
    """Returns the files of all partitions, and where each ends."""
    files: list[DataFile] = []
    offsets: dict[int, int] = {}
    under_way: deque[LogExport] = deque()
    with ThreadPoolExecutor(work.reading.threads, thread_name_prefix="export") as pool:

        def finish_first() -> None:
            first = under_way[0]
            found = first.finish()
            under_way.popleft().close()
            files.extend(found)
            offsets[first.partition] = first.end_offset

        try:
            for identity in logs:
                if len(under_way) == LOGS_HELD_MAX:
                    finish_first()
                one = LogExport.begin(work, identity)
                if one is not None:
                    under_way.append(one)
                    one.submit(pool)
            while under_way:
                finish_first()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            for each in under_way:
                each.discard()
            _remove_new(files, work.known)
            raise
        finally:
            for each in under_way:
                each.close()
    return files, offsets


def _remove_new(files: Sequence[DataFile], known: Mapping[str, DataFile]) -> None:
    for each in files:
        if known.get(each.name) != each:
            each.path.unlink(missing_ok=True)
