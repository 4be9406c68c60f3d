from __future__ import annotations

import os
import pty
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pipeline.job_progress import shown_on_terminal, stream_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def source(description: str, end: str, latest: str) -> Any:
    return SimpleNamespace(description=description, endOffset=end, latestOffset=latest)


def progress(*sources: Any) -> Any:
    return SimpleNamespace(batchId=7, processedRowsPerSecond=1234.5, sources=sources)


def test_a_stream_says_its_batch_its_rate_and_how_far_it_is_behind() -> None:
    kafka = source("KafkaV2[Subscribe[t]]", '{"t":{"0":5,"1":1}}', '{"t":{"0":1500,"1":1}}')

    assert stream_text(progress(kafka)) == "Batch 7, 1,234 records/s, 1,495 offsets behind"


def test_other_sources_are_not_behind() -> None:
    assert stream_text(progress(source("Rate", "5", "9"))).endswith(" 0 offsets behind")


def test_nothing_is_shown_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_on_terminal() as shown:
        assert shown is None

    assert capsys.readouterr() == ("", "")


@pytest.mark.spark
def test_a_job_shows_its_tasks_on_a_terminal(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pty.openpty()
    with ThreadPoolExecutor(1) as reader, os.fdopen(theirs, "w") as terminal:
        reading = reader.submit(read_terminal, ours)
        monkeypatch.setattr(sys, "stderr", terminal)
        with shown_on_terminal() as shown:
            assert shown is not None
            shown.follow(session)
            session.sparkContext.parallelize(range(6), 6).map(slowly).count()
        monkeypatch.undo()
        terminal.close()
        text = reading.result()

    assert "Starting Spark" in text
    assert "of 6 tasks" in text


def slowly(number: int) -> int:
    time.sleep(0.3)
    return number


def read_terminal(descriptor: int) -> str:
    """All that is written to it until the last writer has closed it."""
    chunks = []
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:
            # How Linux says that there is no writer left.
            break
        chunks.append(chunk)
    os.close(descriptor)
    return b"".join(chunks).decode(errors="replace")
