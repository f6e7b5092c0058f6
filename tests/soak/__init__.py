"""Tests that run for as long as one likes: `python -m tests.soak NAME [OPTION...]`, where NAME is one of `RUNS`.

What the request loop, the waiting reads and the threads do to each other shows under mixed load alone, and some of it
only after a long while. `loads` has what programs do to a mount, one process each; `cycle` mounts, lets all of them
run, ends the mount under their hands, and checks that every line whose write had returned is there, once and in order.
The test run has a short form of each.
"""

RUNS = {
    "mount": "tests.soak.mount",
    "followers": "tests.soak.followers",
    "kills": "tests.soak.kills",
    "replicas": "tests.soak.replicas",
    "power": "tests.soak.power",
    "mirror": "tests.soak.mirror",
    "appends": "tests.soak.appends",
    "queries": "tests.soak.queries",
    "scrub": "tests.soak.scrub",
    "crossings": "tests.soak.crossings",
    "restarts": "tests.soak.restarts",
    "work": "tests.soak.work",
    "compatibility": "tests.soak.compatibility",
    "fuzz": "tests.fuzz",
}
"""Modules by the name of what they run: docs/testing.md says what each of them does."""
