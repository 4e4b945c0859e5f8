"""Public data sets in the files that their authors publish, one module per family."""
