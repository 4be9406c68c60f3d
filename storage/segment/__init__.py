"""One segment: its files, its reads, the cleaner's copy of it."""
