"""A query's options, columns and filters, and how its offsets are split into tasks (`ranges`). Reads no files."""
