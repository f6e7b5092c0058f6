"""The topics of a cluster as last seen, each partition with its reader and its producer, and the threads that keep them up to date."""
