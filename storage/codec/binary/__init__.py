"""The lowest layer of the codec: field positions, single fields, writing headers, and raw memory."""
