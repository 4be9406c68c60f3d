"""The topic of compaction events."""
