"""What keeps a normalisation from dividing by zero: the same in torch, in the kernels and in ONNX."""

LAYER_NORM_EPSILON = 1e-5
BATCH_NORM_EPSILON = 1e-5
