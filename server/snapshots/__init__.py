"""Snapshots: made of all or some topics at one moment, listed, dropped."""
