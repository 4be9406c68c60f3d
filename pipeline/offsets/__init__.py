"""Where a read begins and ends."""
