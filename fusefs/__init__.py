"""Topics as files: records are rendered as text, text becomes records, and a mount shows both.

`forms` says how a record looks, `selectors` how an offset or a time is named, `views` gives a partition's rendering
byte positions; the tree, appending and following stand on them, and only the outermost modules know the kernel.
"""
