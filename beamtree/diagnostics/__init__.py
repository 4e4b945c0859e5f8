"""What a trained model does on the inside: measured on held-out users, written as one page."""
