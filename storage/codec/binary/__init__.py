"""The bytes below the codec: which field has which number (`fields`), and raw memory for compiled modules (`memory`)."""
