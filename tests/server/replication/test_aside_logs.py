"""The logs that resyncs have put aside are found beside a partition's log."""

from __future__ import annotations

from server.replication.aside_logs import AsideLog, aside_logs
from tests.harness.memory_fs import MemoryFileSystem


def test_only_finished_logs_of_these_partitions_are_found_with_their_size() -> None:
    fs = MemoryFileSystem()
    for name in ("1", "1.aside.70", "1.aside.70.1", "1.aside.part", "1.resync", "11.aside.5"):
        fs.make_directory(f"data/t/{name}")
        fs.write_bytes(f"data/t/{name}/00.log", bytes(10))
    fs.write_bytes("data/t/1.aside.70/00.index", bytes(4))

    found = aside_logs(fs, ["data/t/1", "data/t/2"])
    assert found == {
        "data/t/1": [
            AsideLog(directory="data/t/1.aside.70", size_bytes=14),
            AsideLog(directory="data/t/1.aside.70.1", size_bytes=10),
        ]
    }


def test_a_partition_whose_files_were_never_made_has_none() -> None:
    assert aside_logs(MemoryFileSystem(), ["data/t/1"]) == {}
