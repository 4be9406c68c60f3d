"""Two sites and their clients: one takes over from the other, again and again, and all is checked.

Clients continue over clean promotions. A forced one ends a generation: its clients are checked, and the
next ones write to topics of their own.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Self

from storage.files.paths import PROMOTED, PROMOTION
from tests.harness.failover_checks import source_of
from tests.harness.failover_clients import Place
from tests.harness.failover_site import Site
from tests.harness.failover_workload import Workload
from tests.harness.standby_process import Json

SETTINGS: dict[str, object] = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 2,
    "offsets.topic.segment.bytes": 1 << 20,
    "log.cleaner.backoff.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    "controlled.shutdown.timeout.ms": 2_000,
    "auto.create.topics.enable": "false",
}
WORK_SECONDS = 1.5
KILL_SECONDS = 3.0
"""A process is killed within this time."""


class Drill:
    """The primary, its standby, and the clients of this generation."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.primary, self.standby = (
            Site(folder / name, SETTINGS | {"node.id": number})
            for number, name in enumerate(("left", "right"), 1)
        )
        self._generation = 0
        self._promotions_before = 0
        self._left_behind: dict[Place, set[int]] = {}
        """The records that only the old primary has, until it has rejoined."""
        self.workload: Workload

    def __enter__(self) -> Self:
        try:
            self.primary.serve()
            self.standby.follow(self.primary)
            self._begin_generation()
        except BaseException:
            self._end(Site.kill)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.workload.end()
        self._end(Site.kill if kind is not None else Site.stop)

    def _end(self, how: Callable[[Site], None]) -> None:
        for site in (self.primary, self.standby):
            if site.is_running:
                how(site)

    def _begin_generation(self) -> None:
        self._generation += 1
        servers = f"{self.primary.address},{self.standby.address}"
        self.workload = Workload(servers, self._generation, self.random.randrange(1 << 30))
        self.workload.begin(self.primary.address)

    # ---------------------------------------------------------------- steps

    def work(self) -> None:
        """Let every client get on, and the standby follow."""
        self.workload.until_all_get_on()
        self.standby.wait_until_level()
        time.sleep(WORK_SECONDS * self.random.random())

    def disturb(self) -> None:
        """Kill one of both, and start it again, some times."""
        for _ in range(self.random.randrange(3)):
            site = self.random.choice((self.primary, self.standby))
            site.kill()
            time.sleep(self.random.random())
            if site is self.standby:
                site.follow(self.primary)
            else:
                site.serve()
            self.work()

    def take_over_cleanly(self) -> None:
        """Promote the standby of a primary that works: nothing may be missing."""
        status, report = self.standby.promote()
        assert status == 200, f"{report}{self.standby.tail()}"
        assert (report["missing"], report["incomplete"]) == ([], []), report
        self._took_over(report, stop_old=self.primary.stop)
        self._checked(report)

    def take_over_by_force(self) -> None:
        """Kill the primary, and promote its standby."""
        self.primary.kill()
        status, report = self.standby.promote(force=True)
        assert status == 200, f"{report}{self.standby.tail()}"
        assert any(each.startswith("unknown") for each in report["missing"]), report
        self._took_over(report, stop_old=lambda: None)
        self._checked(report)

    def take_over_while_it_works(self) -> None:
        """Promote the standby by force at once: the report is exact, because the primary is fenced."""
        status, report = self.standby.promote(force=True, wait_seconds=0)
        assert status == 200, f"{report}{self.standby.tail()}"
        assert not any(each.startswith("unknown") for each in report["missing"]), report
        self._took_over(report, stop_old=self.primary.kill)
        self._checked(report)

    def take_over_with_kills(self) -> None:
        """Kill the standby in the middle of its promotion, until that is finished."""
        while not self._is_promoted:
            promotion = Thread(target=self._promote_quietly)
            promotion.start()
            time.sleep(self.random.random() * KILL_SECONDS)
            self.standby.kill()
            promotion.join()
            if (self.standby.data / PROMOTION).exists() or self._is_promoted:
                break
            self.standby.follow(self.primary)
        # Whatever is left of it, an ordinary start finishes it; it may be killed, too.
        for _ in range(self.random.randrange(2)):
            self.standby.serving.spawn()
            self.standby.following = None
            time.sleep(self.random.random() * KILL_SECONDS)
            self.standby.kill()
        self.standby.serve()
        report = json.loads((self._promotions[-1] / PROMOTION).read_bytes())
        assert report["missing"] == [], report
        self._took_over(report, stop_old=self.primary.stop)
        self._checked(report)

    def _promote_quietly(self) -> None:
        with suppress(OSError, HTTPException, AssertionError):
            self.standby.promote()

    @property
    def _promotions(self) -> list[Path]:
        """The finished promotions of the standby, the newest last."""
        return sorted(self.standby.data.glob(f"{PROMOTED}.*"))

    @property
    def _is_promoted(self) -> bool:
        return len(self._promotions) > self._promotions_before

    def take_over_somehow(self) -> None:
        """Take over in one of these ways."""
        self.random.choice(
            (
                self.take_over_cleanly,
                self.take_over_by_force,
                self.take_over_while_it_works,
                self.take_over_with_kills,
            )
        )()

    def rejoin_somehow(self) -> None:
        """Let the old primary follow the new one, and kill it meanwhile."""
        for _ in range(self.random.randrange(3)):
            self.standby.follow(self.primary)
            time.sleep(self.random.random() * KILL_SECONDS)
            self.standby.kill()
        self.rejoin()

    def rejoin(self) -> None:
        """Let the old primary follow the new one: what only it has is put aside."""
        self.standby.follow(self.primary)
        self.standby.wait_until_level()
        for place, offsets in self._left_behind.items():
            logs = self.standby.put_aside(*place)
            kept = {offset for log in logs for offset in source_of(log).content}
            assert offsets <= kept, f"{place}: {sorted(offsets - kept)} are neither copied nor kept"
        self._left_behind = {}
        self.standby.remove_what_is_put_aside()

    def _took_over(self, report: Json, *, stop_old: Callable[[], None]) -> None:
        """Wait until the clients continue at the new primary, and stop the old one."""
        stop_old = stop_old if self.primary.is_running else _nothing
        self.primary, self.standby = self.standby, self.primary
        self.workload.until_all_get_on()
        stop_old()
        self._promotions_before = len(self._promotions)

    def _checked(self, report: Json) -> None:
        """Check everything. If something is missing, begin with new clients."""
        self.workload.check(self.standby, self.primary.address, report)
        if report["missing"]:
            self._left_behind = self.workload.left_behind(self.standby, report)
            self.workload.end()
            self._begin_generation()


def _nothing() -> None:
    """Nothing runs."""
