"""Records as text by kcat's tokens, CSV, Arrow and Parquet: `topicfs cat --format`.

`records` converts a path of a mount to ranges of offsets, and reads them; `arrow_batches` writes Arrow and Parquet.
`printer` has kcat's tokens and CSV for spreadsheets, and chooses the format by the option's value.
"""
