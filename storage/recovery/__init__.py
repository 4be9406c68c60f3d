"""Recovery after an unclean stop, the checkpoints that shorten it, the disk space kept for it."""
