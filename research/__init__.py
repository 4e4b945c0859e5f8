"""Variants of the paper that the product does not have, and the experiments that use them. Not part of the wheel."""
