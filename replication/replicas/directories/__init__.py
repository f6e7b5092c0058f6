"""The data directories of a set of replicas, their engines, and the state on which they agree."""
