"""Evidence of failed pods for an AI or another program: what matters, without secrets, within a size."""
