"""Background work that appends cause, in other threads."""

from __future__ import annotations

import threading

import pytest

from server.runtime.background import Background


def test_draining_waits_for_jobs_and_for_what_they_submit() -> None:
    background = Background()
    done: list[str] = []
    gate = threading.Event()

    def first() -> None:
        gate.wait(30)
        background.submit(lambda: done.append("second"))
        done.append("first")

    background.submit(first)
    threading.Timer(0.05, gate.set).start()
    background.drain()

    assert sorted(done) == ["first", "second"]
    background.close()


def test_a_job_that_fails_is_logged_and_the_next_one_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    background = Background()
    done: list[int] = []

    background.submit(lambda: done.append(1 // 0))
    background.submit(lambda: done.append(1))
    background.drain()

    assert done == [1]
    assert "a background job failed" in caplog.text
    background.close()
