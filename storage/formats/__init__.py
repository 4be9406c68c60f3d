"""Bytes on disk <-> values: manifest, indexes, sidecar, rows, properties."""
