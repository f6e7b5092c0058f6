"""Durable, Kafka-compatible topics as plain files.

The modules here are the command: they parse what was typed, call the engine or the mount, and print what came back. The
engine, the mount and the rest are folders of their own, to which this one has links. Programs import `topicfs.spark`.
"""
