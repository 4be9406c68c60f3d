"""Where the segments of a log are cut into ranges of offsets, one for a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.source.read import index_entry
from protocol.wire.numbers import Offset
from storage.files.files import FileSystem
from storage.log.on_disk import LogOnDisk, SegmentOnDisk


def cuts(
    fs: FileSystem, log: LogOnDisk, segments: Sequence[SegmentOnDisk], bytes_max: int
) -> Iterator[tuple[int, int, tuple[SegmentOnDisk, ...]]]:
    """Yields start and end offsets with their segments: neighbours together up to `bytes_max` bytes."""
    together: list[SegmentOnDisk] = []
    for segment in segments:
        is_next = not together or together[-1].end_offset <= segment.base_offset
        assert is_next, "segments overlap"
        if together and sum(each.size for each in together) + segment.size > bytes_max:
            yield together[0].base_offset, together[-1].end_offset, tuple(together)
            together = []
        if segment.size > bytes_max:
            yield from _pieces(fs, log, segment, bytes_max)
        else:
            together.append(segment)
    if together:
        yield together[0].base_offset, together[-1].end_offset, tuple(together)


def _pieces(
    fs: FileSystem, log: LogOnDisk, segment: SegmentOnDisk, bytes_max: int
) -> Iterator[tuple[int, int, tuple[SegmentOnDisk, ...]]]:
    """Cut one large segment after batches that its index names; without an index it stays whole.

    A wrong index only cuts at other places, and no record is lost: a cut is an offset.
    """
    count = -(-segment.size // bytes_max)
    first = segment.base_offset
    for number in range(1, count):
        position = segment.size * number // count
        entry = index_entry(fs, log.identity.directory, segment, position=position)
        cut = first if entry is None else Offset(segment.base_offset + entry[0] + 1)
        if first < cut < segment.end_offset:
            yield first, cut, (segment,)
            first = cut
    yield first, segment.end_offset, (segment,)
