"""Attacks on a server, one per file: `attack(model, folder, seconds=...)` starts servers and returns its figures."""
