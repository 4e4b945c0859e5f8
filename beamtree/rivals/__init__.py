"""Systems to compare with."""
