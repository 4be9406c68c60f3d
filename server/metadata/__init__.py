"""The cluster's facts: the metadata store and what is derived from it."""
