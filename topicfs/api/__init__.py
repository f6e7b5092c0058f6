"""The API for programs, which `import topicfs` offers: `topics` opens a place, `topic` reads and appends.

`records` has the values that users see, `bounds` parses where reading begins and ends, `cursor` continues reading
from an offset. `group` reads as a member of a group. `files` has topics whose files another process may own.
"""
