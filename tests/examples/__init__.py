"""The example scripts and the first session, as tests."""
