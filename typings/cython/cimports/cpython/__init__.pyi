"""C libraries as the compiled modules see them."""
