"""Programs that call the command for a person: mount(8), as a helper, and the shell at a TAB."""
