"""The shapes of all JSON bodies, one file for each part of the interface. Unknown fields are refused."""
