"""Common parts of the commands of `topicfs pipeline`: the options for places, running a job, its progress, its rows."""
