"""Named producers: their progress survives crashes, so that nothing is appended twice. `registry` stores it."""
