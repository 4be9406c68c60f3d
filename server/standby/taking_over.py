"""What a start finds of a directory that changes between a broker's and a standby's, and continues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from server.runtime.executors import Executor
from server.standby.install import install
from server.standby.promoted_start import PromotedStart
from server.standby.promotion import is_standby as is_standbys
from server.standby.promotion import read_promotion
from server.standby.rejoin import RejoinedStart, read_rejoin
from storage.files.errors import ForeignDirectory
from storage.files.files import FileSystem


class TakingOver(NamedTuple):
    """At most one of them has begun."""

    promoted: PromotedStart | None = None
    """A standby's directory that becomes a broker's."""
    rejoined: RejoinedStart | None = None
    """A broker's directory that becomes a standby's."""


async def taking_over(
    fs: FileSystem,
    directories: Sequence[str],
    metadata_directory: str,
    upkeep: Executor,
    *,
    is_standby: bool,
) -> TakingOver:
    """Continue what has begun in a metadata directory, with its files.

    Args:
        directories: all log directories.
        is_standby: whether this process is a standby, not promoted.

    Raises:
        ForeignDirectory: the directory is a standby's, and this is none.
        StorageError: the disk failed.
    """
    promotion = await upkeep.run(read_promotion, fs, metadata_directory)
    if promotion is not None:
        promotion = await upkeep.run(install, fs, promotion, directories, metadata_directory)
        return TakingOver(promoted=PromotedStart(fs, metadata_directory, promotion, upkeep))
    rejoin = await upkeep.run(read_rejoin, fs, metadata_directory)
    if not is_standby:
        is_other = rejoin is not None or await upkeep.run(is_standbys, fs, metadata_directory)
        if is_other:
            raise ForeignDirectory(
                f"{metadata_directory} is a standby's directory: kompakt standby promote makes it a"
                " broker's, kompakt standby follows on"
            )
    if rejoin is None:
        return TakingOver()
    rejoined = RejoinedStart(fs, directories, metadata_directory, upkeep)
    return TakingOver(rejoined=rejoined)
