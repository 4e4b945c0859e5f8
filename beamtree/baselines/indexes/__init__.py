"""Two-stage baselines: learned item and query vectors, and an index over them."""
