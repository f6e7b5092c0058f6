"""A connection to a broker: requests and answers, TLS, and authentication."""
