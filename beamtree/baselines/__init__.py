"""Systems to compare with: one protocol, one registry, one file each."""
