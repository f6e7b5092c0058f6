"""Programs that call the command for a user: the helper of mount(8), and completion in the shell."""
