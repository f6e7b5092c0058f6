"""Appending, and creating and deleting topics, through the mount of the daemon that owns the directory."""
