"""Reading a log: `reader` checks the bounds, `fetch` finds an offset by the index, and `times` finds a timestamp."""
