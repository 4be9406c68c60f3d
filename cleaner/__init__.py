"""Log compaction: pick, plan, index, mark, group, recopy, verify, swap. Start in passes/clean.py."""
