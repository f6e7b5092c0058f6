"""Copies of a partition in several data directories, and the scrub that keeps what is on disk sound.

`replicas` elects leaders, has followers catch up and heals; `scrub` reads everything again and finds damage.
"""
