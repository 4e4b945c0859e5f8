"""The item tree: arithmetic plus one permutation."""
