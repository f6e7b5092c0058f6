"""The data directories: their contents, their owners, their checkpoints and their failures."""
