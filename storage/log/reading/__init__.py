"""Reading a log: `reader` checks the bounds, `fetch` finds the segment and, by its index, the position.

`times` looks a timestamp up first.
"""
