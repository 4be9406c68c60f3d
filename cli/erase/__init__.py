"""`kompakt erase`."""
