"""Every system beside every other on one log: fitted, measured, kept, reported."""
