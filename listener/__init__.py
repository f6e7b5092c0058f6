"""A listener for Kafka clients: they use the topics of an engine over data directories as those of one broker.

`listener` accepts connections, each of which has a thread (`connection`). `broker` is what all requests share, and
`requests` has a module for each family of them. `limits` bounds what clients may take.
"""
