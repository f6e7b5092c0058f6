"""The lowest layer of the codec: numbers of fields, single fields, headers that are written, and raw memory."""
