"""The append-only segmented store. Synchronous; every durability rule lives here."""
