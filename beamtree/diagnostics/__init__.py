"""Diagnostics of a trained model, measured on held-out users and written as one HTML page."""
