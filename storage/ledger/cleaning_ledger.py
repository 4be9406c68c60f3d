"""The ledger of a log directory: a chained certificate of each group of segments that passes replaced.

    group entry, synced    <- then the manifest commit that swaps the group; never the other way round
    ...
    pass entry, synced     <- which groups were swapped

One ledger serves all logs of a log directory: it has one head to sign, it goes where the directory goes,
and it survives the deletion of a topic. Each entry is synced before the next one is written, so a crash
tears the last one at most. docs/design/ledger.md has the rules, `storage/formats/ledger_entry.py` the
bytes.

What a start finds at the end of the newest file:
    a torn line            is kept beside the ledger as `cut.<number>`, cut off, and reported by an entry
    a broken chain         stays as it is: a new file begins, which names the break
    passes without an end  get one: `ledger_settling.py`
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from storage.files.errors import DirectoryOffline, StorageError, SyncFailed
from storage.files.files import File, FileSystem, unlink_if_there
from storage.files.paths import join
from storage.formats.ledger_chain import FileState, state_of_file
from storage.formats.ledger_entry import (
    BEGIN,
    CUT,
    FORMAT,
    GROUP,
    NEW_KEY,
    NO_HASH,
    NO_HEAD,
    OFF,
    ON,
    PASS,
    REMOVED,
    SETTLED,
    Entry,
    Head,
    Members,
    encode_entry,
    file_name,
)
from storage.ledger.ledger_files import (
    head_before,
    ledger_folder,
    ledger_numbers,
    ledger_path,
    read_entries,
)
from storage.ledger.ledger_settling import open_passes, settled
from storage.threads import any_thread

_log = logging.getLogger("storage.ledger.cleaning_ledger")

FILES_MAX = 16
"""A ledger with a bound has about so many files: each takes this fraction of it."""
FILE_BYTES_MAX = 16 << 20
KEEPS_ALL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerOwner:
    """Whose ledger it is, as each file's first entry says."""

    cluster_id: str
    directory_id: str
    public_key: str
    """Checks the signatures of the directory (`storage/files/signing_key.py`)."""


@any_thread
class CleaningLedger:
    """Appends to the ledger of one log directory. Calls wait for the disk."""

    __slots__ = (
        "_bytes_max", "_directory", "_file", "_fs", "_head", "_is_caught_up", "_is_closed", "_lock",
        "_now_ms", "_on_failure", "_open_passes", "_owner_of", "breaks", "failure",
    )  # fmt: skip

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        *,
        owner: Callable[[], LedgerOwner],
        bytes_max: int,
        now_ms: Callable[[], int],
        on_failure: Callable[[StorageError], None],
    ) -> None:
        """
        Args:
            directory: the log directory; the ledger is made with its first entry.
            owner: called when the ledger is opened; may raise StorageError.
            bytes_max: all files together take about that much, and the oldest are removed; -1: never.
            on_failure: called with a sync that failed: the directory must go out of service.
        """
        # Constant after construction
        self._fs = fs
        self._directory = directory
        self._owner_of = owner
        self._bytes_max = bytes_max
        self._now_ms = now_ms
        self._on_failure = on_failure
        self._lock = threading.Lock()
        # State
        self._file: File | None = None
        self._is_closed = False
        self._is_caught_up = False
        """Whether this run has recorded what changed since the last one."""
        self._head = NO_HEAD
        self._open_passes: dict[str, int] = {}
        """The first group of each pass that has no end yet."""
        self.failure: str | None = None
        """Why nothing can be written until the next start; None while it can."""
        self.breaks = 0
        """How often this run found the end of the ledger damaged, other than by a torn write."""

    @property
    def directory(self) -> str:
        """The log directory."""
        return self._directory

    @property
    def head(self) -> Head:
        """The last entry; `NO_HEAD` before the ledger was opened."""
        return self._head

    def open(self) -> None:
        """Open the ledger, and settle what a crash has left. `append` does so too.

        Raises:
            DirectoryOffline: a sync of the ledger has failed.
            StorageError: it cannot be read or written, or the owner's key cannot.
        """
        with self._lock, self._final_syncs():
            if not self._is_closed:
                self._opened()

    def append(self, kind: str, members: Members) -> int:
        """Add an entry. Returns its number, when it is durable.

        Args:
            members: JSON types only.

        Raises:
            NoSpace: the disk is full; the entry was not written.
            DirectoryOffline, StorageError: as `open`.
        """
        with self._lock, self._final_syncs():
            file = self._opened()
            return self._append(self._with_room(file), kind, members)

    def turn_off(self) -> None:
        """Record in a ledger that exists that passes run without it from now on. Raises as `open`."""
        with self._lock, self._final_syncs():
            numbers = ledger_numbers(self._fs, self._directory)
            if numbers and not self._is_closed:
                entries = self._state_of(numbers[-1]).entries
                if not entries or entries[-1].kind != OFF:
                    self._append(self._opened(), OFF, {})

    def close(self) -> None:
        """Close the file. Nothing can be appended afterwards."""
        with self._lock:
            self._is_closed = True
            self._close()

    # ---------------------------------------------------------------- writing

    def _append(self, file: File, kind: str, members: Members) -> int:
        line, head = encode_entry(self._head, self._now_ms(), kind, members)
        file.append([line])
        file.sync()
        self._head = head
        if kind == GROUP:
            self._open_passes.setdefault(members["pass"], head.number)
        elif kind in (PASS, SETTLED):
            self._open_passes.pop(members["pass"], None)
        return head.number

    def _with_room(self, file: File) -> File:
        """Returns the file for the next entry, after a new one began if the last one was full."""
        if file.size < self._file_bytes_max:
            return file
        new = self._begin(self._head, {"why": "the file before it is full"})
        self._remove_oldest(new)
        return new

    @property
    def _file_bytes_max(self) -> int:
        share = FILE_BYTES_MAX if self._bytes_max < 0 else self._bytes_max // FILES_MAX
        return min(share, FILE_BYTES_MAX)

    def _begin(self, head: Head, why: Members) -> File:
        """Begin a file after `head`, durably."""
        self._close()
        owner = self._owner_of()
        members = {
            "format": FORMAT,
            "cluster": owner.cluster_id,
            "directory": owner.directory_id,
            "public_key": owner.public_key,
            "open_since": min(self._open_passes.values(), default=None),
            **why,
        }
        path = ledger_path(self._directory, head.number + 1)
        file = self._fs.open(path, create=True)
        try:
            self._head = head
            self._append(file, BEGIN, members)
            self._fs.sync_directory(ledger_folder(self._directory))
        except BaseException:
            file.close()
            raise
        self._file = file
        return file

    def _remove_oldest(self, file: File) -> None:
        """Remove files until the bound holds; each removal is recorded before it happens."""
        numbers = ledger_numbers(self._fs, self._directory)
        paths = [ledger_path(self._directory, number) for number in numbers]
        sizes = [self._fs.size(path) for path in paths]
        while 0 <= self._bytes_max < sum(sizes) and len(paths) > 1:
            last = head_before(self._fs, self._directory, numbers[1])
            if last is None:
                return  # The chain is broken there: nothing that could prove it is removed.
            members = {"file": file_name(numbers[0]), "through": last.number, "hash": last.hash}
            self._append(file, REMOVED, members)
            self._fs.unlink(paths[0])
            self._fs.sync_directory(ledger_folder(self._directory))
            del numbers[0], paths[0], sizes[0]

    # ---------------------------------------------------------------- opening

    def _opened(self) -> File:
        if self.failure is not None or self._is_closed:
            raise DirectoryOffline(self._directory, self.failure or "its ledger is closed")
        if self._file is None:
            self._file = self._open()
        if not self._is_caught_up:
            # Only once: later, passes without an end are those that run.
            self._catch_up(self._file)
            self._is_caught_up = True
        return self._file

    def _open(self) -> File:
        """Returns the newest file, ready for the next entry; makes one if there is none."""
        numbers = ledger_numbers(self._fs, self._directory)
        if not numbers:
            self._fs.make_directory(ledger_folder(self._directory))
            self._fs.sync_directory(self._directory)
            return self._begin(NO_HEAD, {"why": "the ledger begins"})
        state = self._state_of(numbers[-1])
        if not state.entries:
            return self._begin_again(numbers)
        if state.problem is not None:
            return self._begin_after_break(numbers[-1], state.entries[-1].head, state.problem)
        self._head = state.entries[-1].head
        file = self._fs.open(ledger_path(self._directory, numbers[-1]))
        try:
            self._cut(file, state.sound_end)
        except BaseException:
            file.close()
            raise
        return file

    def _state_of(self, number: int) -> FileState:
        return state_of_file(self._fs.read_bytes(ledger_path(self._directory, number)))

    def _begin_again(self, numbers: list[int]) -> File:
        """Replace a newest file that has no sound entry, because a crash preceded its first sync."""
        path = ledger_path(self._directory, numbers[-1])
        data = self._fs.read_bytes(path)
        self._keep_cut(numbers[-1], data)
        unlink_if_there(self._fs, path)
        self._fs.sync_directory(ledger_folder(self._directory))
        why = {"why": "the beginning of this file was torn", **_of_cut(data)}
        if numbers == [0]:
            return self._begin(NO_HEAD, why)
        before = self._state_of(numbers[-2]).entries if len(numbers) > 1 else ()
        if not before or before[-1].number != numbers[-1] - 1:
            text = "the entries before it are damaged or missing"
            return self._begin_after_break(numbers[-1], Head(numbers[-1] - 1, NO_HASH), text)
        return self._begin(before[-1].head, why)

    def _begin_after_break(self, number: int, head: Head, problem: str) -> File:
        name = file_name(number)
        _log.error(
            "%s: the chain of certificates is broken in %s: %s", self._directory, name, problem
        )
        self.breaks += 1
        return self._begin(
            head, {"why": "the chain before it is broken", "broken": [name, problem]}
        )

    def _cut(self, file: File, sound_end: int) -> None:
        """Cut off a torn last line, and say so in the next one."""
        torn = file.read_at(sound_end, file.size - sound_end)
        if torn:
            _log.warning("%s: cutting off %d bytes torn by a crash", file.path, len(torn))
            self._keep_cut(self._head.number + 1, torn)
            file.truncate(sound_end)
            self._append(file, CUT, _of_cut(torn))

    def _keep_cut(self, number: int, data: bytes) -> None:
        """Keep bytes that are cut off, durably: they may be damage, and then nothing else has them."""
        folder = ledger_folder(self._directory)
        if data:
            self._fs.replace_durably(join(folder, f"cut.{number}"), data)

    def _catch_up(self, file: File) -> None:
        """Record what changed since the last run, and how its last passes ended."""
        entries = self._entries_of_open_passes()
        public_key = self._owner_of().public_key
        if _public_key_in(entries) not in (None, public_key):
            self._append(file, NEW_KEY, {"key": public_key})
        if [each.kind for each in entries if each.kind in (OFF, ON)][-1:] == [OFF]:
            self._append(file, ON, {})
        for groups in open_passes(entries).values():
            self._append(file, SETTLED, settled(self._fs, self._directory, groups))

    def _entries_of_open_passes(self) -> list[Entry]:
        """Returns the entries of the newest files, from the first one on that a pass without an end
        may have."""
        numbers = ledger_numbers(self._fs, self._directory)
        since = max(numbers[-1] - 1, 0)
        newest = list(read_entries(self._fs, self._directory, since=since))
        opened = [each.members.get("open_since") for each in newest if each.kind == BEGIN]
        needed = min((each for each in opened if each is not None), default=since)
        if needed >= since:
            return newest
        return list(read_entries(self._fs, self._directory, since=needed))

    # ---------------------------------------------------------------- failing

    @contextmanager
    def _final_syncs(self) -> Iterator[None]:
        """End the ledger if a sync in the body fails: nobody knows what the disk has."""
        try:
            yield
        except SyncFailed as error:
            self.failure = str(error)
            self._close()
            self._on_failure(error)
            raise

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _public_key_in(entries: Sequence[Entry]) -> str | None:
    """Returns the last public key that entries name."""
    names = {BEGIN: "public_key", NEW_KEY: "key"}
    keys: list[str] = [each.members[names[each.kind]] for each in entries if each.kind in names]
    return keys[-1] if keys else None


def _of_cut(data: bytes) -> Members:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
