"""Properties: declared, read, shown, changed."""
