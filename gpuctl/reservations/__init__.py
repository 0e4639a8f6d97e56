"""GPU reservations: pure rules in `rules`, and what keeps and serves them."""
