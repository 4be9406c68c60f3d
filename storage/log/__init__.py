"""A partition: append, read, sync, roll, retain, swap, truncate; the directory of logs."""
