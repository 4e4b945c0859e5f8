"""From interaction logs to dense, flat sequences."""
