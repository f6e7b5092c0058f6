"""An archive back into topics: what must be written (`plan`, `overlap`, `topics`), and the two ways of writing it."""
