"""The lowest layer of the codec: field positions, single fields, header writing, and raw memory."""
