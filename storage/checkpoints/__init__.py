"""Checkpoints: small files with state that the logs themselves do not contain.

Each format has one module that reads and writes it. Files are replaced atomically, except the clean-shutdown marker.
"""
