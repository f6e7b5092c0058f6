"""Compressed records: the framing of each codec, the old formats with nested messages, and bounds for inflating."""
