"""Sessions, jars, jobs, progress."""
