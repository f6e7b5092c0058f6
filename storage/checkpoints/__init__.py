"""Checkpoints: small files with state that the logs themselves do not contain.

How far each partition is flushed, where it starts and how far it is replicated (offset checkpoints), which
leader wrote what (leader epochs), whose topic a directory is (partition.metadata), whose data directory
(meta.properties) and whether it was closed in order (the clean-shutdown marker). Each format is in one module with its
reader and writer; all but the marker are replaced atomically.
"""
