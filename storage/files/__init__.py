"""The file operations that storage uses; the only place that touches a disk."""
