"""What is measured of a server's process."""

from __future__ import annotations

import os
import time

from bench.base.processes import cpu_seconds


def test_the_cpu_time_of_a_process_is_the_one_that_it_sees_itself() -> None:
    before = time.process_time()
    seen = cpu_seconds(os.getpid())
    after = time.process_time()

    assert before <= seen <= after
