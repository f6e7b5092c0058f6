"""Appends, and topics made and deleted, through the mount of the daemon that owns the directory."""
