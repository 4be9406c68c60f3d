"""Recovery after an unclean stop, and the checkpoints that shorten it."""
