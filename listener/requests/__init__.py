"""The requests that are answered: one module for each family, and the table of all requests (`table`)."""
