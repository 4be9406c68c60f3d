"""Compares mirrors with their sources (docs/design/replication.md, "Verify")."""
