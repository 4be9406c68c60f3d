"""Mirrors: topics of another cluster, copied offset by offset (docs/design/replication.md)."""
