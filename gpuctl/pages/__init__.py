"""Self-contained HTML pages: no script, nothing loaded from elsewhere, light and dark, readable by screen readers."""
