"""The lowest layer of the codec: numbers of fields, single fields, headers that are written, and raw memory.

Which field has which number is in `fields`, single fields of a batch that may be damaged in `frame`, the header of a batch
that is being written in `header_writer`, and raw memory for compiled modules in `memory`.
"""
