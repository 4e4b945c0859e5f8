"""Baselines of two stages: item vectors and a query that somebody learned, and an index that searches them."""
