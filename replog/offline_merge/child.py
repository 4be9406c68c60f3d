"""The child's program: merges as its argument says (`plan.py`), and ends with status 0 if it could.

It has a low priority, its memory is the first that the system frees, and it ends when its parent does.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from pathlib import Path

from replog.offline_merge.merge import merge
from replog.offline_merge.merger import named_merger
from replog.offline_merge.plan import MergePlan
from storage.files.errors import StorageError
from storage.files.local_files import LocalFileSystem

NICENESS = 10
OOM_SCORE = "500"
"""The system, out of memory, ends the child before its parent."""


def main(argument: str) -> int:
    """Merge. Returns the exit status."""
    os.nice(NICENESS)
    # As its directory, the file is for its owner only.
    os.umask(0o077)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)
    plan = MergePlan.from_json(argument)
    parent = select.poll()
    parent.register(sys.stdin.fileno(), select.POLLHUP)
    try:
        for _ in merge(LocalFileSystem(), plan, named_merger(plan.merger)):
            if parent.poll(0):
                return 1
    except StorageError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
