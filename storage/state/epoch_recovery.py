"""Loads a log's leader epochs from their checkpoint, or from its batches if that is damaged or gone."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from protocol.records.batch_tally import BatchTally
from storage.batches.scan import scan_file
from storage.files.errors import CorruptLog, DamagedFile, MissingFile
from storage.files.files import FileSystem
from storage.files.paths import LEADER_EPOCH_CHECKPOINT, join
from storage.formats.config_property import LONG_MAX
from storage.segment.segment import Segment
from storage.state.leader_epochs import LeaderEpochs, decode_leader_epochs

_log = logging.getLogger("storage.state.epoch_recovery")


def load_epochs(fs: FileSystem, directory: str, segments: Sequence[Segment]) -> LeaderEpochs:
    """Returns the start offset of each epoch, at least up to the end of `segments`.

    The checkpoint is written before every manifest, so it contains the epochs of all sealed segments.
    The scan that finds the end of the active segment adds that segment's epochs.

    Raises:
        FormatFromTheFuture: a later release wrote the checkpoint.
        CorruptLog, DiskError: the checkpoint is unusable, and so is a segment.
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
