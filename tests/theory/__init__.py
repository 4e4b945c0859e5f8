"""What the paper proves, and its worked examples, held against the code; one file for each part of the paper.

test_loss            the modified loss is a Bregman divergence; what sampling costs, and when its gradient is unbiased
test_rectification   one-hot labels mislead a beam, rectified ones do not; the illustration of the labels
test_sampling        path probabilities; when top-down sampling is the softmax, and how far it is from it otherwise
test_tree_learning   the figure of the tree update; every assignment is a bijection

Same bytes for the same seed, and after being stopped or killed: tests/fitting/test_fit.py and
tests/training/test_killed.py.
"""
