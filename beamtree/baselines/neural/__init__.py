"""Neural networks that score every item: the brute-force systems of the comparison. Need torch."""
