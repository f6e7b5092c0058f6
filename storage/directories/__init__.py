"""The data directories: their contents, their owners, their checkpoints and their failures.

`directories` has all directories of an engine, `data_directory` what can be done with one, `reserve` the room that
freeing space needs on a full disk.
"""
