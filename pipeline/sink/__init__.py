"""Topics as a sink of DataFrames: each task stages encoded batches, the driver requests a commit, the owner appends.

`options`, `layout` and `commit_request` do not use Spark; `rows` turns Arrow batches into record batches; `writers`
implements Spark's interface. `storage.staging` makes a write atomic and ensures that it is appended exactly once.
"""
