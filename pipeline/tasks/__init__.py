"""Work as tasks of Spark: how much goes into one, and how what they find comes back."""
