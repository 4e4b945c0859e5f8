"""`beamtree reproduce`: the experiments of the DTR paper by name, on any log."""
