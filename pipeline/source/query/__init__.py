"""A query's options, columns and filters, and the ranges of offsets that they mean. No file is read here."""
