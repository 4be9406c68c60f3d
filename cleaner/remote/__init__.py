"""A pass that another process carries out."""
