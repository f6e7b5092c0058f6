"""Compressed records: the codecs' frames, the old formats that nest them, and the bounds of what is inflated."""
