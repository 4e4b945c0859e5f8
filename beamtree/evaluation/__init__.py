"""Metrics and the protocol they are measured under."""
