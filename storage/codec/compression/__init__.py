"""Compressed records: the codecs' framings, the old formats with nested messages, and bounds for inflating."""
