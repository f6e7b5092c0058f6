"""Checkpoints: small files with state that the logs themselves do not contain.

Each format has one module with its reader and writer; all files except the clean-shutdown marker are replaced
atomically.
"""
