"""Interactive programs in pods: a shell on the terminal, or a command in all of them."""
