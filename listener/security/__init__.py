"""Who may connect to a listener: TLS, the users and their passwords, and the server's side of SASL."""
