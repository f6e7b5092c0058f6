"""Options of the whole test run."""

pytest_plugins = [
    "tests.build_machine",
    "tests.randomness",
    "tests.repairs",
    "tests.scheduling",
    "tests.uncompiled",
]
