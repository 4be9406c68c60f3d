"""Memory that the host has given to this machine already.

A virtual machine returns free pages to its host after a few seconds. The next file that grows then gets
new ones, at a price: 155 µs for each 64 KiB written, 12 with pages that were used before. A topic that
was just deleted leaves its pages to the next one, so a broker that removes its topics at once would have
an advantage.
"""

from __future__ import annotations

import tempfile

PIECE = bytes(1 << 20)


def warm_pages(size: int) -> None:
    """Fill the page cache with so many bytes and free them: the files that grow next get these pages."""
    with tempfile.TemporaryFile() as scratch:
        for _ in range(size // len(PIECE)):
            scratch.write(PIECE)
