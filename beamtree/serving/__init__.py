"""An HTTP server over a saved model: JSON in, beam search, JSON out. Runs without torch."""
