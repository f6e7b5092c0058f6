"""The sub-commands of `topicfs pipeline`: jobs over whole topics, run by Spark.

One module for each job: its name, arguments and options; `group` lists them. What they share is in `topicfs/jobs/`.
"""
