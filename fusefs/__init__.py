"""Topics as files: records are rendered as text, text becomes records, and a mount shows both.

`forms` defines how records look as text, `selectors` how file names select offsets or times, and `views` gives each
byte of a partition's rendering a position. `tree`, `appending` and `following` use these three. `daemon`,
`operations` and `requests` connect the mount with the kernel.
"""
