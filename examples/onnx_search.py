"""Recommend from an exported model with ONNX Runtime and NumPy alone.

    python examples/onnx_search.py model.onnx 12 7 55

The numbers are dense items, oldest first: positions in item_ids.npy of `beamtree export vectors`.
"""

import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
history = np.array([sys.argv[2:]], dtype=np.int64)
length = np.array([history.shape[1]], dtype=np.int64)
ids, scores = session.run(["ids", "scores"], {"history": history, "length": length})
for rank, (item_id, score) in enumerate(zip(ids[0], scores[0], strict=True), start=1):
    print(rank, item_id, f"{score:.4f}")
