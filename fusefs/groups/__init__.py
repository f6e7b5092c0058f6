"""Reading as a group member: which records an open `log` or `drain` under `@groups` delivers, and which are done.

    partition ─► chunks ─► assigned partitions ─► delivery ─► read(2)
                                        ▲            │ the next read: records that were given in full are done
                  membership ◄──────────┴────────────┘

`chunks` renders records and knows where each record ends in the text; `assigned_partitions` has the partitions of a
reader; `delivery` tracks which records were delivered, and which are done. These modules never wait and know nothing
of the kernel. `reader` is the open file, which waits and joins the group; `queue` is the open `take` of a queue;
`words` parses the command lines that programs write to these open files.
"""
