"""What a start finds of a directory that changes between a broker's and a standby's, and continues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from server.runtime.executors import Executor
from storage.files.errors import ForeignDirectory
from storage.files.files import FileSystem
from storage.files.paths import METADATA, PROMOTION, REJOIN, STANDBY, join

if TYPE_CHECKING:
    from server.standby.promoted_start import PromotedStart
    from server.standby.rejoin import RejoinedStart


class TakingOver(NamedTuple):
    """At most one of them has begun."""

    promoted: PromotedStart | None = None
    """A standby's directory that becomes a broker's."""
    rejoined: RejoinedStart | None = None
    """A broker's directory that becomes a standby's."""


class _Found(NamedTuple):
    """Which files are there."""

    has_promotion: bool
    has_rejoin: bool
    is_standbys: bool


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
    found = await upkeep.run(_look, fs, metadata_directory)
    if found.has_promotion:
        return await _promoted(fs, directories, metadata_directory, upkeep)
    if not is_standby and (found.has_rejoin or found.is_standbys):
        raise ForeignDirectory(
            f"{metadata_directory} is a standby's directory: kompakt standby promote makes it a"
            " broker's, kompakt standby follows on"
        )
    if not found.has_rejoin:
        return TakingOver()
    # Imported here, as what a promotion needs: most starts find neither.
    from server.standby.rejoin import RejoinedStart, read_rejoin

    await upkeep.run(read_rejoin, fs, metadata_directory)
    return TakingOver(rejoined=RejoinedStart(fs, directories, metadata_directory, upkeep))


async def _promoted(
    fs: FileSystem, directories: Sequence[str], metadata_directory: str, upkeep: Executor
) -> TakingOver:
    from server.standby.install import install
    from server.standby.promoted_start import PromotedStart
    from server.standby.promotion import read_promotion

    promotion = await upkeep.run(read_promotion, fs, metadata_directory)
    assert promotion is not None, "it was found, and only this start removes it"
    promotion = await upkeep.run(install, fs, promotion, directories, metadata_directory)
    return TakingOver(promoted=PromotedStart(fs, metadata_directory, promotion, upkeep))


def _look(fs: FileSystem, directory: str) -> _Found:
    return _Found(
        has_promotion=fs.exists(join(directory, PROMOTION)),
        has_rejoin=fs.exists(join(directory, REJOIN)),
        is_standbys=fs.exists(join(join(directory, STANDBY), METADATA)),
    )
