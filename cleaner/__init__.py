"""Log compaction: pick, map, recopy, swap. Start reading in `cleaner/passes/clean.py`."""
