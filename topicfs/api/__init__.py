"""The API for programs, which `import topicfs` offers: `topics` opens a place, `topic` reads and appends.

`records` are the values that users see, `bounds` reads where they begin and end, `cursor` reads on from an offset. `group`
reads as a member of a group. `files` are topics whose files another process may own.
"""
