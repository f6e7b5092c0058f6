"""Files of a log directory as text, byte for byte what kafka-dump-log (DumpLogSegments) prints; `files` walks them."""
