"""Compressed records: the codecs' frames, the old formats that nest them, and bounds for inflating."""
