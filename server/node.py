"""Who this broker is in its cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The broker's identity, as clients see it. It is its own controller."""

    node_id: int
    cluster_id: str

    @property
    def controller_id(self) -> int:
        """The broker that topics are created at."""
        return self.node_id
