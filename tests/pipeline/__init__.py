"""Topics in and out of Spark: what is decided without it, tested without it; the rest in one small session."""
