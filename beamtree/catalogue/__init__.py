"""A catalogue that changes under a trained model: items join and leave the tree without any training."""
