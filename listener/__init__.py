"""A listener for Kafka clients: it serves an engine's topics as the topics of a single broker.

`listener` accepts connections, `connection` answers the requests of one connection in a thread of its own, `broker`
holds the state that all requests share, and `requests` has a module for each family of requests. `limits` limits the
resources that clients may use.
"""
