"""The last value of a key: the tables that find it, the HTTP routes, and the reads of views."""
