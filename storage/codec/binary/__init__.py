"""The bytes below the codec.

Which field has which number is in `fields`, single fields of a batch that may be damaged in `frame`, and raw memory for
compiled modules in `memory`.
"""
