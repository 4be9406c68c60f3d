"""The leader epochs of a log: from their checkpoint, or from its batches if that is damaged or gone."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from protocol.batch_tally import BatchTally
from storage.config_property import LONG_MAX
from storage.errors import CorruptLog, DamagedFile, MissingFile
from storage.files import FileSystem
from storage.leader_epochs import LeaderEpochs, decode_leader_epochs
from storage.paths import LEADER_EPOCH_CHECKPOINT, join
from storage.scan import scan_file
from storage.segment import Segment

_log = logging.getLogger("storage.epoch_recovery")


def load_epochs(fs: FileSystem, directory: str, segments: Sequence[Segment]) -> LeaderEpochs:
    """Where each epoch begins, as far as `segments` go at least.

    The checkpoint is written before every manifest, so that it has the epochs of all sealed
    segments; those of the active one are found by the scan that finds its end.

    Raises:
        FormatFromTheFuture: a later release wrote the checkpoint.
        CorruptLog, DiskError: the checkpoint is no good, and neither is a segment.
    """
    path = join(directory, LEADER_EPOCH_CHECKPOINT)
    try:
        return decode_leader_epochs(fs.read_bytes(path), path)
    except (MissingFile, DamagedFile) as error:
        if any(segment.size for segment in segments):
            _log.warning("%s; reading the batches instead", error)
        return _epochs_in(segments)


def _epochs_in(segments: Sequence[Segment]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for segment in segments:
        if segment.size:
            for epoch, start_offset in _tally(segment).epochs:
                epochs.assign(epoch, start_offset)
    return epochs


def _tally(segment: Segment) -> BatchTally:
    tally = BatchTally(
        base_offset=segment.base_offset, index_interval_bytes=LONG_MAX, producers_from=LONG_MAX
    )
    with segment.pinned() as file:
        end = scan_file(file, segment.size, tally)
    if end.reason:
        raise CorruptLog(file.path, end.position, end.reason)
    return tally
