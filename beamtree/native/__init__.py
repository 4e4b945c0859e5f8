"""CPU kernels: compiled on install, with plain NumPy and torch paths where no compiler is at hand."""
