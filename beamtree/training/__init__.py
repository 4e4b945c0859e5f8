"""Learning the preference model."""
