"""What is used of the lz4 package, which brings no types."""
