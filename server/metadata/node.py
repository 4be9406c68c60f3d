"""The broker's identity in its cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The identity that clients see. The broker is its own controller."""

    node_id: int
    cluster_id: str

    @property
    def controller_id(self) -> int:
        """The broker that handles the creation of topics: this one."""
        return self.node_id
