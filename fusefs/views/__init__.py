"""Views: a view shows a partition in one form as the bytes of a file, and reads it in bounded windows.

                                             view_file    positions remembered beside sealed segments
                                                 │
    log, 10-20 ──► view ──► measure ────► sparse_index    which byte is where
                    ▲           │
                  reader        ▼
                    └──► rendering ──► decoded_fetch ──► Partition.read
                                           ▲
    42, earliest ──► records ──────────────┤
    orders/log ────► merged_stream ────────┘

A *view position* is a byte of such a file. `view` has the views of a partition (`View`, `PartitionViews`), whose
positions `measure` finds out; `reader` renders what lies between two known ones through windows (`ViewReader`).
`decoded_fetch` reads and decodes batches around damaged ones. `records` finds single records, and `merged_stream`
orders the records of several partitions; neither needs positions.
"""
