"""The last value of a key: the tables that find it, and the HTTP routes."""
