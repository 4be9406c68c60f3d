"""A Kafka client of other brokers: connections, TLS, logins."""
