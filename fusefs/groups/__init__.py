"""Reading as a group member: which records an open `log` or `drain` under `@groups` gets, and which are done.

    partition ─► chunks ─► assigned partitions ─► delivery ─► read(2)
                                        ▲            │ asks for more: what was given whole is done
                  membership ◄──────────┴────────────┘

`chunks` renders records and knows where each of them ends in the text; `assigned_partitions` has the partitions of a
reader; `delivery` keeps account of what was given, and what of that is answered for. None of them knows the kernel, or
waits. `reader` is the open file, which waits and joins the group; `queue` is the open `take` of a queue; `words` are
the lines that programs write to either.
"""
