"""Real tmux servers and terminals for tests."""
