"""Kill a broker, fill its disk to the last byte, and start it again.

As root the disk is a real one of 32 MiB (tmpfs); else the file system says that it is full.
"""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.wire.error_codes import ErrorCode
from storage.files.files import FileSystem
from storage.files.local_files import LocalFileSystem
from tests.harness.broker_process import BrokerProcess
from tests.harness.faulty_fs import FaultyFileSystem
from tests.harness.raw_connection import METADATA, RawConnection, string
from tests.harness.served_broker import batch_of, serving_broker_on

DISK_BYTES = 32 << 20
FILL_BYTES = 64 << 10
TOPICS = ("orders", "users", "events")


class SmallDisk:
    """A directory on a disk that can be full."""

    def __init__(self, path: Path, *, is_mounted: bool) -> None:
        self.path = path
        self._is_mounted = is_mounted

    def fill(self) -> FileSystem:
        """Leave no free byte; the file system to start a broker on."""
        if not self._is_mounted:
            files = FaultyFileSystem()
            files.faults.space = 0
            return files
        with (self.path / "of-somebody-else").open("wb", buffering=0) as file:
            for size in (FILL_BYTES, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)):
                        pass
        return LocalFileSystem()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)]
    is_mounted = os.geteuid() == 0 and not subprocess.run(mount, capture_output=True).returncode
    try:
        yield SmallDisk(path, is_mounted=is_mounted)
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.parametrize("has_reserve", [True, False], ids=["with reserve", "without"])
async def test_a_killed_broker_starts_on_a_full_disk_with_all_that_was_acknowledged(
    disk: SmallDisk, tmp_path: Path, has_reserve: bool
) -> None:
    data = disk.path / "data"
    process = BrokerProcess(tmp_path, {"log.dirs": data, "num.partitions": 1})
    process.start()
    with RawConnection(process.port) as connection:
        # Creates them.
        names = b"".join(map(string, TOPICS))
        connection.request(METADATA, 1, struct.pack(">i", len(TOPICS)) + names)
        for topic in TOPICS:
            for number in range(20):
                batch = bytes(batch_of(3, value=b"x" * 100 * number))
                assert connection.produce(topic, batch) == (ErrorCode.NONE, 3 * number)
    process.kill()
    assert (data / ".reserve").exists()
    if not has_reserve:
        (data / ".reserve").unlink()
    files = disk.fill()

    async with serving_broker_on(files, data) as served:
        for topic in TOPICS:
            log = served.log(topic)
            assert log.high_watermark == 60, topic
            fetched = await served.fetch(topic, 0)
            assert fetched.error_code == ErrorCode.NONE
            assert fetched.high_watermark == 60
