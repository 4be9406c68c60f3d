"""An executor in a process that may be killed: `python -m tests.harness.lease_program PLAN RESULT`."""

from __future__ import annotations

import sys
from pathlib import Path

from cleaner.remote.plan import RemotePlan
from tests.harness.lease_client import execute

if __name__ == "__main__":
    plan, result = map(Path, sys.argv[1:])
    executed = execute(RemotePlan.from_json(plan.read_text()))
    part = result.with_suffix(".part")
    part.write_text(executed.to_json())
    part.rename(result)
