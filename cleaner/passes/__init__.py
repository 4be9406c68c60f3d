"""A pass: index, mark, recopy, verify. Start reading in `cleaner/passes/clean.py`."""
