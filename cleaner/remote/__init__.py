"""A pass that another process executes: its plan, its steps, and the commit of its result."""
