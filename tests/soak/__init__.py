"""A mount under everything at once, for as long as one likes: `python -m tests.soak --seconds 3600`.

What the request loop, the waiting reads and the threads do to each other shows under mixed load alone, and some of it
only after a long while. `loads` has what programs do, one process each; `cycle` mounts, lets all of them run, ends
the mount under their hands, and checks that every line whose write had returned is there, once and in order. The test
run has a short form.
"""
