"""What strangers' bytes must not do to the parsers of logins, stores, ACLs and quotas."""
