"""Experiments: settings files in, measured lines and a report of which claims hold here out."""
