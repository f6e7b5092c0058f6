"""The mirror: copies topics of a cluster into a data directory, each batch at its own offset."""
