"""A Kafka client inside Kompakt: connections to other brokers, their TLS and logins."""
