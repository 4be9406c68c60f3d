"""A broker process that kills itself (SIGKILL) in a chosen phase of a cleaning pass.

It watches the file operations of the cleaner's threads, so it can die exactly after one of them, even
during a commit, which takes a few milliseconds and which no outside observer could hit:

    index     a key sidecar is made: a segment is read, the sidecar is written and named
    mark      key sidecars are read; nothing is staged yet
    recopy    a staged segment is written, or its sources are read
    verify    a staged segment is read again
    commit    the manifest is replaced, files are renamed, directories synced, sources removed

The module runs as the broker: `python -m tests.harness.dying_broker serve ...`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Any

from storage.files.local_files import LocalFile, LocalFileSystem
from storage.files.paths import CLEANED, KEYS
from tests.harness.broker_process import BrokerProcess

CLEANER_THREADS = "cleaner"
LAST_WORDS = "died in"


class Phase(StrEnum):
    """The phase of a pass in which a broker dies."""

    INDEX = "index"
    MARK = "mark"
    RECOPY = "recopy"
    VERIFY = "verify"
    COMMIT = "commit"


class DyingBroker(BrokerProcess):
    """A `BrokerProcess` that can be ordered to die."""

    __slots__ = ()

    @property
    def order_path(self) -> Path:
        return self.folder / "order"

    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        return [python, "-m", "tests.harness.dying_broker", str(self.order_path), *arguments]

    def order_death(self, phase: Phase, operations: int) -> None:
        """Let it die after this many more operations of a phase, over as many passes as needed."""
        staging = self.order_path.with_suffix(".tmp")
        staging.write_text(f"{phase} {operations}")
        staging.rename(self.order_path)

    def has_died(self) -> bool:
        """Returns whether the process has ended, and removes the order then."""
        assert self._process is not None
        if self._process.poll() is None:
            return False
        assert self._process.returncode == -signal.SIGKILL, f"it ended by itself{self.tail()}"
        self.order_path.unlink()
        self._process = None
        return True

    def last_words(self) -> str:
        """Returns where in a pass it died last."""
        lines = self.log_path.read_text(errors="replace").splitlines()
        return next(line for line in reversed(lines) if line.startswith(LAST_WORDS))


class Executioner:
    """Observes every file operation of the cleaner's threads and carries out the order."""

    def __init__(self, order_path: str) -> None:
        self._order_path = Path(order_path)
        self._left: int | None = None
        self._victim: Phase | None = None
        self._here = threading.local()

    def saw(self, action: str, path: str) -> None:
        """Count one completed operation of the calling thread."""
        if not threading.current_thread().name.startswith(CLEANER_THREADS):
            return
        phase = self._phase(action, path)
        self._here.phase = phase
        if self._left is None and self._order_path.exists():
            name, operations = self._order_path.read_text().split()
            self._victim, self._left = Phase(name), int(operations)
        if self._left is not None and phase is self._victim:
            self._left -= 1
            if self._left <= 0:
                os.write(2, f"{LAST_WORDS} {phase}: {action} {Path(path).name}\n".encode())
                os.kill(os.getpid(), signal.SIGKILL)

    def _phase(self, action: str, path: str) -> Phase:
        before = getattr(self._here, "phase", Phase.COMMIT)
        is_recopy = before is Phase.RECOPY
        goes_on = before is Phase.INDEX or (action == "open" and not is_recopy)
        if path.endswith(KEYS + CLEANED) and goes_on:
            # A source's sidecar: those of outputs are opened in a recopy and named in a swap.
            return Phase.INDEX
        if action in ("rename", "replace", "unlink", "sync directory"):
            return Phase.COMMIT
        if path.endswith(CLEANED):
            return Phase.VERIFY if action == "read" else Phase.RECOPY
        if is_recopy:
            return Phase.RECOPY
        return Phase.MARK if path.endswith(KEYS) else Phase.INDEX


def watch(executioner: Executioner) -> None:
    """Report every file operation of this process to the executioner."""
    for name, action in {"read_at": "read", "append": "append", "sync": "sync"}.items():
        _tell(LocalFile, name, lambda file, *_: file.path, action, executioner)
    on_names = {
        "open": "open",
        "write_bytes": "write",
        "rename": "rename",
        "replace_durably": "replace",
        "unlink": "unlink",
        "sync_directory": "sync directory",
    }
    for name, action in on_names.items():
        _tell(LocalFileSystem, name, lambda _, path, *__: path, action, executioner)


def _tell(
    kind: type, name: str, path_of: Callable[..., str], action: str, executioner: Executioner
) -> None:
    done = getattr(kind, name)

    @wraps(done)
    def told(*arguments: Any, **named: Any) -> Any:
        result = done(*arguments, **named)
        executioner.saw(action, path_of(*arguments))
        return result

    setattr(kind, name, told)


def main() -> int:
    from cli.main import main as serve

    watch(Executioner(sys.argv[1]))
    return serve(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
