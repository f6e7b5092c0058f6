"""One connection to a broker: requests and their answers, TLS, and authentication."""
