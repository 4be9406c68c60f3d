"""What an unclean start does."""
