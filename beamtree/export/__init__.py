"""Trained models in the forms that other tools read."""
