"""`kompakt replica`: links to other clusters, and their mirrors."""
