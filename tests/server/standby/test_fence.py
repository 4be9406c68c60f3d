"""A broker's fence: whom it names, since when, and what operators read about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.metadata.embedded_store import EmbeddedMetadataStore
from server.standby.fence import KEY, Fence, fence_of
from storage.files.errors import DiskError
from storage.files.local_files import LocalFileSystem

NOON_MS = 1_798_286_400_000
"""2026-12-26 12:00 UTC."""


class Wall:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.ms = NOON_MS

    def now_ms(self) -> int:
        return self.ms


async def test_the_first_start_of_a_fence_keeps_its_time(tmp_path: Path) -> None:
    store, wall = await EmbeddedMetadataStore.open(LocalFileSystem(), str(tmp_path / "n")), Wall()
    first = await fence_of("b", store, wall.now_ms)
    wall.ms += 5_000
    again = await fence_of("b", store, wall.now_ms)
    other = await fence_of("c", store, wall.now_ms)
    await store.close()

    assert first == again == Fence(by="b", since_ms=NOON_MS)
    assert other == Fence(by="c", since_ms=NOON_MS + 5_000)


async def test_a_lifted_fence_is_forgotten_and_without_one_nothing_is_written(
    tmp_path: Path,
) -> None:
    store = await EmbeddedMetadataStore.open(LocalFileSystem(), str(tmp_path / "n"))
    assert await fence_of("", store, lambda: NOON_MS) is None
    assert store.revision == 0

    await fence_of("b", store, lambda: NOON_MS)
    assert await fence_of("", store, lambda: NOON_MS) is None

    assert await store.get(KEY) is None
    await store.close()


@pytest.mark.parametrize("by", ["b", ""])
async def test_a_disk_without_space_decides_nothing(
    tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await EmbeddedMetadataStore.open(LocalFileSystem(), str(tmp_path / "n"))

    async def fail(*_: object) -> None:
        raise DiskError("write", str(tmp_path), 28, "No space left on device")

    monkeypatch.setattr(EmbeddedMetadataStore, "_txn", fail)
    found = await fence_of(by, store, lambda: NOON_MS)
    await store.close()

    assert found == (Fence(by="b") if by else None)


@pytest.mark.parametrize(
    ("since_ms", "listener", "text"),
    [
        pytest.param(
            NOON_MS,
            "INTERNAL",
            "this broker is fenced: b has taken over (since 2026-12-26T12:00:00Z); only requests that"
            " read are served, on INTERNAL; on that listener, kompakt configs unset --broker"
            " broker.fenced.by ends it",
            id="with_listener",
        ),
        pytest.param(
            None,
            "",
            "this broker is fenced: b has taken over; no listener is open, as"
            " inter.broker.listener.name is not set; start with such a listener, on which kompakt"
            " configs unset --broker broker.fenced.by ends it",
            id="without",
        ),
    ],
)
def test_operators_read_who_has_taken_over_since_when_and_how_to_end_it(
    since_ms: int | None, listener: str, text: str
) -> None:
    assert Fence(by="b", since_ms=since_ms).described(listener) == text
