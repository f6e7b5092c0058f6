"""A listener for Kafka clients: it serves an engine's topics as those of a single broker.

`listener` accepts connections, `connection` answers the requests of one connection in its own thread, `broker` holds
the state that all requests share, and `requests` has a module for each family of requests. `limits` bounds the
resources that clients may use.
"""
