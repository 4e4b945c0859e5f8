"""Beam search over a saved model."""
