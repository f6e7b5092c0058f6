"""The project's own compiled modules, as seen by each other."""
