"""What a child process merges: its one argument, a JSON object."""

from __future__ import annotations

import json
from dataclasses import dataclass

from replog.entry import SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """The snapshot to write, and what it is made from."""

    directory: str
    base: SnapshotId
    """The last complete snapshot; EMPTY for none."""
    snapshot: SnapshotId
    """The snapshot to write, as a part. A segment of the log begins where it ends."""
    digest: int
    """The live machine's digest at the end of `snapshot`."""
    merger: str
    """The machine's merger, as `named_merger` takes it."""

    def to_json(self) -> str:
        """Returns the plan as text."""
        return json.dumps(
            {
                "directory": self.directory,
                "base": [self.base.end, self.base.term],
                "snapshot": [self.snapshot.end, self.snapshot.term],
                "digest": f"{self.digest:032x}",
                "merger": self.merger,
            }
        )

    @staticmethod
    def from_json(text: str) -> MergePlan:
        """Returns the plan that a text has."""
        plan = json.loads(text)
        return MergePlan(
            directory=plan["directory"],
            base=SnapshotId(*plan["base"]),
            snapshot=SnapshotId(*plan["snapshot"]),
            digest=int(plan["digest"], 16),
            merger=plan["merger"],
        )
