"""A partition: append, read, roll, retain, swap, truncate; the directory of logs."""
