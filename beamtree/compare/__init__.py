"""Systems side by side on one log: fitted, measured, stored, reported."""
