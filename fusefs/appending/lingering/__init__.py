"""Lines of acks=0: answered at once, gathered, and appended together a little later."""
