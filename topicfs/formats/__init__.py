"""Records as text by kcat's tokens, CSV, Arrow and Parquet: `topicfs cat --format`.

`ranges` finds what a path of a mount means as ranges of offsets, and `records` reads them; `template` are kcat's
tokens, `arrow_batches` Arrow and Parquet. `printer` has CSV for spreadsheets, and chooses by the option's text.
"""
