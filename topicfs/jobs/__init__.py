"""What the commands of `topicfs pipeline` share: where topics are, running a job, its progress, and printing its rows."""
