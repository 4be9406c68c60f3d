"""Whether the end of a segment was torn by a crash or is damaged.

A crash can tear only the last frame, because each is synced before the next one is written. The part of
it that did not reach the disk is missing at the file's end, or reads as sectors of zeros. Everything
else was acknowledged, so that damage there is an error and is never cut off:

    a sound frame follows                            damaged
    the file ends before the frame's header does     torn
    a 512-byte sector, or a part of one, is zeros    torn: it was never written
    the header is unsound                            damaged
    the body extends beyond the file's end           torn
    the body's checksum differs                      damaged

Source of the sector rule: etcd, wal/decoder.go isTornEntry.
"""

from __future__ import annotations

from replog.frames import FRAME_HEADER_BYTES, FRAME_MAGIC, frame_at, head_at

SECTOR_BYTES = 512


def frame_damage(data: bytes, position: int) -> str | None:
    """Returns why the bytes from `position` on cannot be one torn frame; None if they can."""
    following = data.find(FRAME_MAGIC, position + 1)
    while following >= 0:
        if frame_at(data, following) is not None:
            return "a valid frame follows a damaged one"
        following = data.find(FRAME_MAGIC, following + 1)
    if len(data) - position < FRAME_HEADER_BYTES or has_lost_sector(data, position):
        return None
    head = head_at(data, position)
    if head is None:
        return "the header of the last frame is damaged"
    if position + FRAME_HEADER_BYTES + head.size > len(data):
        return None
    return "a frame's checksum differs, and no part of it is missing"


def has_lost_sector(data: bytes, start: int) -> bool:
    """Returns whether the bytes from `start` on have a disk sector, or a part of one, of only zeros."""
    while start < len(data):
        end = min((start // SECTOR_BYTES + 1) * SECTOR_BYTES, len(data))
        if not any(data[start:end]):
            return True
        start = end
    return False
