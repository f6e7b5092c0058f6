"""Checkpoints: small files with state that the logs themselves do not contain.

Each format is in one module with its reader and writer; all but the clean-shutdown marker are replaced atomically.
"""
