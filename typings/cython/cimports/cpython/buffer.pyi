"""The buffer protocol's flags."""

PyBUF_READ: int
