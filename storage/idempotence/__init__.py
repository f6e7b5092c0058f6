"""Named producers: their progress survives crashes, so that no record is appended twice.

`registry` stores the progress.
"""
