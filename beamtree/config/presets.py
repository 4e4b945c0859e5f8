"""Named starting points: each says where it differs from the declared defaults, which are the preset "default"."""

from typing import Any, Literal

from beamtree.config.specs import PUBLISHED_ENCODER, PUBLISHED_NETWORK, PUBLISHED_SCHEDULE

PresetName = Literal["instant", "small", "default", "paper"]

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "instant": {"model": {"parts": ["memory"]}},
    "small": {
        "training": {"max_instances": 150_000, "schedule": {"validations": 3}},
        "estimator": {"max_positions": 2_000_000, "recipe": {"validations": 3}},
    },
    "default": {},
    "paper": {
        "data": {"min_interactions": 15, "protocol": "paper"},
        "tree": {"order": "category", "placement": "published"},
        "model": {
            "parts": ["attention"],
            "history_length": 69,
            "layers": [128, 64, 24],
            "network": PUBLISHED_NETWORK.model_dump(mode="json"),
        },
        "training": {
            "negatives": 70,
            "batch_size": 100,
            "method": "dtr-t-rl",
            "rounds": 12,
            "target_horizon": 1,
            "learning_rate": 1e-3,
            "epochs": 1000,
            "max_instances": 8_000_000,
            "schedule": PUBLISHED_SCHEDULE.model_dump(mode="json"),
            "device": "auto",
        },
        "estimator": {
            "encoder": "self-attention",
            "width": 24,
            "epochs": 30,
            "max_positions": None,
            "learning_rate": 1e-3,
            "recipe": PUBLISHED_ENCODER.model_dump(mode="json"),
        },
    },
}
