from __future__ import annotations

import struct

import pytest

from storage.log import Appended
from storage.paths import TIME_INDEX
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import LogHome
from tests.harness.memory_fs import MemoryFileSystem


@pytest.mark.parametrize("lie", [(1000, 11), (1011, 2), (999, 5)])
def test_time_index_that_is_plausible_but_wrong_never_hides_a_record(lie: tuple[int, int]) -> None:
    disk = MemoryFileSystem()
    home = LogHome(disk)
    log = home.create()
    for number in range(12):
        batch = batch_of([(b"key", bytes(40))], timestamps=[1000 + number])
        assert isinstance(log.append_as_leader(valid(batch), now_ms=0), Appended)
    log.roll(0)
    log.close()
    (name,) = [name for name in disk.list(log.directory) if name.endswith(TIME_INDEX)][:1]
    disk.write_bytes(f"{log.directory}/{name}", struct.pack(">qi", *lie))

    log = home.open(is_clean=True)

    for number in range(12):
        found = log.offset_for_timestamp(1000 + number)
        assert found is not None
        assert found.offset == number
