"""Reading a log: `reader` checks the bounds, `fetch` finds an offset by the index, `times` a timestamp."""
