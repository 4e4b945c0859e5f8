"""Settings as models of the formats 1 to 6 recorded them, in today's names."""

from collections.abc import Iterable, Mapping
from typing import Any

from beamtree.config.data_sections import CONTEXT, ITEMS, ROW_ORDER, USERS
from beamtree.config.loading import merge

_BEFORE_THEY_COULD_BE_SET: Mapping[str, Mapping[str, Any]] = {
    "log": {},
    "data": {"shuffle_ties": False, "min_held_out": 1},
    "tree": {},
    "model": {"first_vectors": "random", "parts": ["attention"]},
    "memory": {},
    "training": {"target_horizon": 1, "most_instances": None},
    "estimator": {
        "encoder": "self-attention",
        "first_vectors": "random",
        "negatives": "all",
        "most_positions": None,
        "decay": "constant",
        "history_length": 69,
    },
    "retrieval": {"exclude_seen": True},
}
_RENAMED = {"first_vectors": "embedding_init", "most_instances": "max_instances", "most_positions": "max_positions"}
_NETWORK = ("windows", "attention_hidden", "normalisation", "dropout", "history_table", "embedding_init")
_SCHEDULE = (
    *("optimiser", "weight_decay", "warmup_steps", "decay", "clip_norm"),
    *("validations", "patience", "validation_users", "checkpoint_minutes"),
)
_RECIPE = ("layers", "dropout", "embedding_init", "negatives", "batch_positions", "decay", "validations", "patience")
_GONE: Mapping[str, tuple[str, ...]] = {
    "log": (
        *("item_columns", "item_features", "user_features", "context_features"),
        *("min_rating", "event_type", "since", "until", "row_order"),
    ),
    "data": ("validation_share", "test_share", "shuffle_ties"),
    "tree": ("stride", "assignment", "moved_rows", "instances_per_item"),
    "model": _NETWORK,
    "training": (
        *_SCHEDULE,
        *("targets_per_history", "rectification", "soft_items", "soft_share", "depth_slope"),
        *("path_start", "path_correction", "path_mode"),
    ),
    "estimator": (*_RECIPE, "history_length", "heads", "weight", "seed"),
}
_WEIGHTS = ("transitions", "company", "repeats", "popularity", "fade", "repeat_fade")


def in_todays_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded settings under the names of today; what is no setting any more is dropped."""
    if "decided" in settings:
        return dict(settings)
    today = _translated(settings)
    for section, gone in _GONE.items():
        today[section] = {name: value for name, value in today[section].items() if name not in gone}
    return today


def _translated(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What models up to format 6 recorded, where "decided" was no section; names that moved are still there too."""
    old = {
        section: {_RENAMED.get(name, name): value for name, value in values.items()}
        for section, values in merge(_BEFORE_THEY_COULD_BE_SET, settings).items()
    }
    log, data, model, memory, estimator = (old[name] for name in ("log", "data", "model", "memory", "estimator"))
    weights = {"tower": estimator.get("weight"), **_picked(_WEIGHTS, memory)}
    if memory.get("trend") is False:
        weights["trend"] = 0.0
    today: dict[str, Any] = {name: values for name, values in old.items() if name != "memory"}
    today["log"] = {**log, **_log(log)}
    today["data"] = {**data, "held_out_shares": (data.get("validation_share", 0.1), data.get("test_share", 0.1))}
    today["model"] = {
        **model,
        "network": _picked(_NETWORK, model),
        "weights": _set(weights),
        "memory_megabytes": memory.get("megabytes", 400.0),
    }
    today["training"] = {**old["training"], "schedule": _picked(_SCHEDULE, old["training"])}
    today["estimator"] = {**estimator, "recipe": _picked(_RECIPE, estimator)}
    today["decided"] = {"shuffle_ties": data["shuffle_ties"], "history_length": estimator["history_length"]}
    return today


def _log(log: Mapping[str, Any]) -> dict[str, Any]:
    """Columns, features and filters, which had several names each."""
    columns = {**log.get("columns", {}), **_prefixed(ITEMS, log.get("item_columns", {}))}
    if log.get("row_order"):
        columns["timestamp"] = ROW_ORDER
    return {
        "columns": columns,
        "features": {
            **_prefixed(ITEMS, log.get("item_features", {})),
            **_prefixed(USERS, log.get("user_features", {})),
            **_prefixed(CONTEXT, log.get("context_features", {})),
        },
        "keep": _set({**_picked(("min_rating", "since", "until"), log), **log.get("event_type", {})}),
    }


def _picked(names: Iterable[str], section: Mapping[str, Any]) -> dict[str, Any]:
    return {name: section[name] for name in names if name in section}


def _prefixed(prefix: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    return {prefix + name: value for name, value in columns.items()}


def _set(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
