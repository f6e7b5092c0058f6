"""The requests that are answered: a module for each family, and the table of all (`table`)."""
