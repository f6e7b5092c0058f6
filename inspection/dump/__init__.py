"""Prints files of a log directory as text, byte for byte like kafka-dump-log (DumpLogSegments); start with `files`."""
