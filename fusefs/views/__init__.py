"""A rendering of a partition as the bytes of a file: which byte is where, and how it is read without holding it.

A *view position* is a byte of that file. `decoded_fetch` reads and decodes batches around damaged ones, `sparse_index`
knows some positions, `measuring` finds them out, `reader` renders what lies between them through windows,
`view_file` and `store` remember them beside sealed segments, `partition_views` hands out the views of one
partition, and `records` finds single records.
"""
