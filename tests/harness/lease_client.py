"""A client that leases a log from a broker in the test's loop, cleans it, and commits the result."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from cleaner.remote.execute import RemotePass, is_one_task, result_of
from cleaner.remote.plan import RemotePlan, RemoteResult
from tests.harness.steered_broker import Json, SteeredBroker


class LeaseClient:
    """Sends requests for one partition, with the token."""

    def __init__(self, broker: SteeredBroker, data_dir: Path, where: str) -> None:
        self._broker = broker
        token = (data_dir / "remote-cleaning.token").read_text().strip()
        self.headers = {"Authorization": f"Bearer {token}"}
        self.where = f"{where}/lease"

    async def ask(self, method: str, path: str = "", **options: Any) -> tuple[int, Json]:
        return await self._broker.ask(method, self.where + path, headers=self.headers, **options)

    async def begin(self) -> tuple[str, RemotePlan]:
        status, answer = await self.ask("POST")
        assert status == 200, answer
        plan = RemotePlan.from_json(json.dumps(answer["plan"]))
        assert plan.lease == answer["lease"]
        return answer["lease"], plan

    async def commit(self, lease: str, result: RemoteResult | str) -> Json:
        """Commit a result. Returns the finished job."""
        text = result if isinstance(result, str) else result.to_json()
        status, job = await self.ask("POST", f"/{lease}/commit", data=text)
        assert status == 202, job
        return await self._broker.finished(job)


async def executed(plan: RemotePlan) -> RemoteResult:
    """Execute a plan in a thread, as one attempt."""
    return await asyncio.to_thread(execute, plan)


def execute(plan: RemotePlan) -> RemoteResult:
    """Execute a plan as one attempt."""
    with RemotePass(plan) as executor:
        keys = [executor.index(number) for number in executor.numbers]
        section = executor.section(keys)
        marked = executor.mark(keys, section)
        if is_one_task(keys):
            results = list(executor.recopy_log(keys, marked, section))
        else:
            found = [
                executor.findings(each, its, section)
                for each, its in zip(keys, marked, strict=True)
            ]
            results = [
                result
                for group in executor.groups(found)
                if (result := executor.recopy_group(keys[group], marked[group], section))
            ]
    return result_of(plan, section.end_offset, results, keys)
