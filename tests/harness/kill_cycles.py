"""Kills a broker again and again under a writer, and checks its topics after each restart."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from storage.files.local_files import ReadOnlyFileSystem
from tests.harness.broker_process import BrokerProcess
from tests.harness.cleaning import wait_until_clean
from tests.harness.clients import create_topic
from tests.harness.verification import errors_in

KILLS = int(os.environ.get("KOMPAKT_KILLS", "6"))


class LoadWriter(Protocol):
    """Writes to the topics, also while the broker is killed."""

    def write_for(self, seconds: float) -> None:
        """Write for a while; records may still be unacknowledged when it returns."""

    def finish(self) -> None:
        """Write the last records, and wait until all records are acknowledged."""


W = TypeVar("W", bound=LoadWriter)


@contextmanager
def outliving_kills(
    path: Path,
    topics: Mapping[str, dict[str, str]],
    writer_of: Callable[[str, random.Random], W],
    check: Callable[[BrokerProcess, W], object],
) -> Iterator[tuple[BrokerProcess, W]]:
    """Yields a broker and its writer after the last kill, when every topic is clean.

    Args:
        path: an empty directory, for the broker.
        topics: the topics to create, with their properties.
        writer_of: makes the writer from the bootstrap servers and a source of random numbers.
        check: is called after each restart.
    """
    choices = random.Random(int(os.environ.get("KOMPAKT_KILL_SEED", "7")))
    broker = BrokerProcess(path, {"log.cleaner.backoff.ms": "20"})
    broker.start()
    for topic, config in topics.items():
        create_topic(broker.bootstrap_servers, topic, config=config)
    writer = writer_of(broker.bootstrap_servers, choices)
    try:
        for _ in range(KILLS):
            writer.write_for(choices.uniform(0.1, 0.8))
            broker.kill()
            assert errors_in(ReadOnlyFileSystem(), str(broker.data_dir)) == []
            broker.start()
            check(broker, writer)
        writer.finish()
        for topic in topics:
            wait_until_clean(f"127.0.0.1:{broker.http_port}", topic)
        yield broker, writer
    finally:
        broker.__exit__(None)
