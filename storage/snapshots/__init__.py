"""Snapshots of a running broker: its files at one moment, under second names."""
