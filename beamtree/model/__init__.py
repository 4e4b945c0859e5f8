"""The preference network and its scorers."""
