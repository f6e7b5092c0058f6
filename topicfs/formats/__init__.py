"""Records as text by kcat's tokens, CSV, Arrow and Parquet: `topicfs cat --format`.

`records` finds what a path of a mount means as ranges of offsets, and reads them; `arrow_batches` are Arrow and Parquet.
`printer` has kcat's tokens and CSV for spreadsheets, and chooses by the option's text.
"""
