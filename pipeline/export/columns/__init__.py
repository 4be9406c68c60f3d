"""What keys and values say, as columns of a table."""
