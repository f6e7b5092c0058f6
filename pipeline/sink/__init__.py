"""Topics as a sink of DataFrames: each task stages encoded batches, the driver hands them in, the owner appends them.

`options`, `layout` and `commit_request` know no Spark; `rows` turns Arrow batches into record batches; `writers` faces
Spark. What makes a write whole and once is `storage.staging`.
"""
