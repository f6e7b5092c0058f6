"""Views: a view shows a partition in one form as the bytes of a file, and reads these bytes in bounded windows.

                                             view_file    positions remembered beside sealed segments
                                                 │
    log, 10-20 ──► view ──► measure ────► sparse_index    which byte is where
                    ▲           │
                  reader        ▼
                    └──► rendering ──► decoded_fetch ──► Partition.read
                                           ▲
    42, earliest ──► records ──────────────┤
    orders/log ────► merged_stream ────────┘

A *view position* is the position of a byte in such a file. `view` has the views of a partition (`View`,
`PartitionViews`); `measure` determines at which positions their records begin. `reader` renders the text between two
known positions in windows (`ViewReader`). `decoded_fetch` reads batches, decodes them, and skips damaged batches.
`records` finds single records, and `merged_stream` orders the records of several partitions; neither needs positions.
"""
