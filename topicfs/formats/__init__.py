"""Records in the formats of other programs: `topicfs cat --format`.

`ranges` finds what a path of a mount means as ranges of offsets, and `records` reads them; `template` are kcat's
tokens, `csv_rows` rows for spreadsheets, `arrow_batches` Arrow and Parquet. `format` chooses by the option's text.
"""
