"""Backups: copies of snapshots in a repository, and how these become data directories again."""
