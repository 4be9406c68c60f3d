"""Log directories, syncs, the high watermark, waiting fetches."""
