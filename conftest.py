"""Options of the whole test run."""

pytest_plugins = ["tests.uncompiled"]
