"""The passes of one log that can be undone: the undo file, and the segments that are kept for it.

    swap       undo file written      <- what the swap replaces is kept from here on
               manifest committed     <- the pass can be undone
    undo       manifest committed     <- the pass is undone
               undo file written, the pass's outputs retired
    end        undo file written      <- the pass can no longer be undone
               its segments retired

Kept segments have their own names in the log's directory, because readers may still open them. The
manifest does not list them, so they count neither in the log's size nor in its dirty ratio. Recovery
leaves files alone that a valid entry of the undo file names, and removes all others as before.

If the undo file cannot be written because the disk is full, the file and everything that is kept go:
that is what the disk needs. The next manifest then says that there is no undo file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from protocol.wire.numbers import Offset
from storage.files.errors import (
    DamagedFile,
    FormatFromTheFuture,
    MissingFile,
    NoSpace,
    UndoRefused,
)
from storage.files.files import FileSystem, unlink_if_there
from storage.files.paths import LOG, UNDO, join, segment_file
from storage.formats.manifest import Manifest, SegmentRow
from storage.segment.segment import Segment
from storage.state.aborted_transactions import Row as AbortedRow
from storage.threads import any_thread
from storage.undo.undo_file import EndReason, KeptPass, KeptSwap, decode, encode
from storage.undo.undo_rule import (
    REASONS,
    Name,
    Stack,
    as_found,
    expired,
    name_of,
    name_of_segment,
    refusal,
    with_start_at,
    within_bytes,
    within_count,
)

_log = logging.getLogger("storage.undo.kept_passes")


def read_stack(fs: FileSystem, directory: str, manifest: Manifest) -> Stack:
    """Returns the passes that can be undone according to a log's files. Changes nothing.

    A damaged file, or one of a later release, keeps nothing: the log itself is whole.

    Raises:
        DiskError: the disk failed.
    """
    if not manifest.has_undo_file:
        return Stack()
    path = join(directory, UNDO)
    try:
        ended, kept = decode(fs.read_bytes(path), path)
    except (DamagedFile, FormatFromTheFuture, MissingFile) as error:
        _log.warning("no pass can be undone: %s", error)
        return Stack()
    listed = {name_of(row) for row in manifest.segments}
    stack = as_found(Stack(kept, ended), listed, manifest.log_start_offset)
    lost = [
        at
        for at, each in enumerate(stack.kept, 1)
        if not all(is_there(fs, directory, row) for row in each.sources)
    ]
    return stack.end(max(lost, default=0), EndReason.LOST, 0)


def is_there(fs: FileSystem, directory: str, row: SegmentRow) -> bool:
    """Returns whether the file of a kept segment exists and has all its bytes. Raises DiskError."""
    with suppress(MissingFile):
        name = segment_file(row.base_offset, row.file_version, LOG)
        return fs.size(join(directory, name)) >= row.size
    return False


def kept_names(stack: Stack) -> frozenset[Name]:
    """Returns the names of all kept segments."""
    return frozenset(name_of(row) for each in stack.kept for row in each.sources)


@any_thread
class KeptPasses:
    """The passes of one log that can be undone. Its commits own it; all changes are under their lock."""

    __slots__ = (
        "_clock_ms",
        "_directory",
        "_fs",
        "_is_stale",
        "_segment_of",
        "_segments",
        "has_file",
        "stack",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        segment_of: Callable[[SegmentRow], Segment],
        clock_ms: Callable[[], int],
    ) -> None:
        """
        Args:
            segment_of: returns the log's segment with a row, whose files exist.
            clock_ms: returns the wall time in ms.
        """
        # Constant after construction
        self._fs = fs
        self._directory = directory
        self._segment_of = segment_of
        self._clock_ms = clock_ms
        # State: changed under the log's commit lock, read by any thread.
        self.stack = Stack()
        self.has_file = False
        """Whether the next manifest may say that the undo file holds."""
        # Whether the undo file may have swaps that did not happen.
        self._is_stale = False
        self._segments: dict[Name, Segment] = {}
        """Those that this run has replaced: readers may still use them."""

    def found(self, stack: Stack) -> None:
        """Take what the undo file of the log says (`read_stack`), when the log is opened."""
        self.stack = stack
        self.has_file = self._is_stale = True

    # ---------------------------------------------------------------- swaps

    def begin_swap(
        self,
        begun: KeptPass,
        swap: KeptSwap,
        aborted: Iterable[AbortedRow],
        *,
        is_first: bool,
        bytes_max: int,
    ) -> bool:
        """Keep what a swap is about to replace, durably. Returns whether it is kept.

        Without that, nothing is kept from then on, also of this pass: its undo would be incomplete, and
        that of an earlier one would be wrong.

        Args:
            begun: the pass as it is before its first swap.
            aborted: the transactions that the log forgets with this commit.
            is_first: whether it is the first swap of the pass.
            bytes_max: of all kept segments; older passes go first, and then this one.
        """
        kept = self.stack.kept
        is_there = bool(kept) and kept[-1].number == begun.number
        if not is_first and not is_there:
            # What it had kept is gone already.
            self.end_all(EndReason.LATER_PASS)
            return False
        newest = kept[-1] if is_there else begun
        newest = replace(
            newest,
            kept_ms=self._clock_ms(),
            swaps=(*newest.swaps, swap),
            aborted=(*newest.aborted, *aborted),
        )
        now_ms = self._clock_ms()
        grown = within_count(self.stack.with_newest(newest), now_ms)
        self._change(within_bytes(grown, bytes_max, now_ms))
        return bool(self.stack.kept)

    def keep_aborted(self, aborted: Sequence[AbortedRow]) -> None:
        """Keep the transactions that a moved clean offset makes the log forget, durably."""
        if self.stack.kept and aborted:
            newest = self.stack.kept[-1]
            newest = replace(newest, aborted=(*newest.aborted, *aborted))
            self._change(self.stack.with_newest(newest))

    def take_back(self, before: Stack | None) -> None:
        """Forget the last swap, whose manifest could not be committed: its sources are still the log.

        The undo file still has it. That is harmless (`undo_rule.as_found`), and the next swap writes the
        file again.

        Args:
            before: the stack before the swap began; nothing is taken back if it is still the same.
        """
        if self.stack.kept and self.stack is not before:
            newest = self.stack.kept[-1]
            newest = replace(newest, swaps=newest.swaps[:-1])
            kept = (*self.stack.kept[:-1], *([newest] if newest.swaps else []))
            self.stack = replace(self.stack, kept=kept)
            self._is_stale = True

    def keep(self, replaced: Iterable[Segment]) -> list[Segment]:
        """Keep the segments that a swap has just replaced. Returns the others, to be retired."""
        names = kept_names(self.stack)
        others = []
        for segment in replaced:
            name = name_of_segment(segment)
            if name in names:
                self._segments[name] = segment
            else:
                others.append(segment)
        return others

    # ---------------------------------------------------------------- the undo

    def check_undo(self, number: int) -> KeptPass:
        """Returns the pass if it can be undone now.

        Raises:
            UndoRefused: with the reason; nothing has changed.
        """
        reason = refusal(self.stack, number)
        if reason is None and not all(
            is_there(self._fs, self._directory, row) for row in self.stack.kept[-1].sources
        ):
            self.end_all(EndReason.LOST)
            reason = refusal(self.stack, number)
        if reason is not None:
            raise UndoRefused(f"pass {number} cannot be undone: {reason}")
        return self.stack.kept[-1]

    def segments_of(self, undone: KeptPass) -> list[Segment]:
        """Returns the segments that a pass has replaced."""
        return [self._segments.get(name_of(row)) or self._segment_of(row) for row in undone.sources]

    def undone(self) -> None:
        """Forget the newest pass, whose undo is committed: what it had replaced is the log."""
        for row in self.stack.kept[-1].sources:
            self._segments.pop(name_of(row), None)
        self.stack = self.stack.end_newest(EndReason.UNDONE, self._clock_ms())
        self._change(self.stack)

    # ---------------------------------------------------------------- the end of what is kept

    def end_all(self, reason: EndReason) -> None:
        """Let everything go that is kept. Then the undo file has nothing that a later swap could make
        look true."""
        if self.stack.kept or self._is_stale:
            self._change(self.stack.end(len(self.stack.kept), reason, self._clock_ms()))

    def end_expired(self, undo_ms: int, now_ms: int) -> None:
        """Let the passes go whose time is over."""
        self._change_if_shorter(expired(self.stack, undo_ms, now_ms))

    def start_moved(self, start_offset: Offset) -> None:
        """Let the passes go that a new log start makes impossible to undo."""
        self._change_if_shorter(with_start_at(self.stack, start_offset, self._clock_ms()))

    def end_with_log(self, reason: EndReason) -> None:
        """Let everything go, because the log that it belongs to has just gone.

        The manifest on disk says that there is no undo file. The caller removes all files that the
        manifest does not list.
        """
        for segment in self.segments():
            segment.files.remove_at_once()
        self._segments = {}
        before = self.stack
        self.stack = before.end(len(before.kept), reason, self._clock_ms())
        self._report_ends(before)
        self._write()

    def segments(self) -> tuple[Segment, ...]:
        """Returns the kept segments that readers of this run may still use."""
        return tuple(self._segments.values())

    def _change_if_shorter(self, stack: Stack) -> None:
        if len(stack.kept) < len(self.stack.kept):
            self._change(stack)

    def _change(self, stack: Stack) -> None:
        """Write another stack, and then retire what is no longer kept."""
        before, self.stack = self.stack, stack
        if not self._write():
            self.stack = stack.end(len(stack.kept), EndReason.DISK, self._clock_ms())
        self._report_ends(before)
        names = kept_names(self.stack)
        for row in (row for each in before.kept for row in each.sources):
            if name_of(row) not in names:
                segment = self._segments.pop(name_of(row), None) or self._segment_of(row)
                segment.files.retire()

    def _write(self) -> bool:
        """Write the undo file durably. Returns False if the disk is full: then it is removed durably."""
        path = join(self._directory, UNDO)
        try:
            self._fs.replace_durably(path, encode(self.stack.ended, self.stack.kept))
        except NoSpace as error:
            _log.warning("%s: nothing can be kept for an undo: %s", self._directory, error)
            # Neither a removal nor its sync needs space. A manifest that says it exists does no harm.
            unlink_if_there(self._fs, path)
            self._fs.sync_directory(self._directory)
            self.has_file = self._is_stale = False
            return False
        self.has_file, self._is_stale = True, False
        return True

    def _report_ends(self, before: Stack) -> None:
        numbers = {each.number for each in before.kept}
        for each in self.stack.ended:
            if each.number in numbers and each.reason is not EndReason.UNDONE:
                reason = REASONS[each.reason]
                _log.info(
                    "%s: pass %d can no longer be undone: %s", self._directory, each.number, reason
                )
