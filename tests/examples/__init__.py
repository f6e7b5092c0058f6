"""Tests of the example scripts and of the first session."""
