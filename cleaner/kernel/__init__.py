"""The per-record work, compiled."""
