"""Shared parts of the `topicfs pipeline` commands: options for places, running a job, its progress, its rows."""
