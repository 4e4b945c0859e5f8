"""The fits of a comparison: each system, and each variant of beamtree, with every seed and on every fold."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from beamtree.compare.ours import OURS
from beamtree.compare.task import SYSTEMS_MODULE, Task
from beamtree.config import Config
from beamtree.config.loading import merge, parse_assignment
from beamtree.data.split import Fold
from beamtree.errors import InputError

VARIED = next(iter(OURS))
Variants = Mapping[str, Sequence[str]]
"""Settings `section.key=value` of the default that differ, by label."""


def plan_tasks(
    log: str,
    items: str | None,
    *,
    config: Config,
    systems: Iterable[str],
    seeds: Iterable[int],
    budget_seconds: float | None,
    cutoffs: tuple[int, ...],
    variants: Variants | None = None,
    folds: int | None = None,
    systems_module: str = SYSTEMS_MODULE,
) -> list[Task]:
    """All tasks, seed by seed and fold by fold. InputError for a variant that changes the protocol."""
    fits: list[dict[str, Any]] = [{"system": name} for name in systems]
    for label, assignments in (variants or {}).items():
        if any(label == fit["system"] for fit in fits):
            raise InputError(f"There is a system {label!r} already. Give the variant another label.")
        changes = {"settings": _varied(label, assignments, config=config)}
        fits.append({"system": VARIED, "label": label, "changes": changes})
    return [
        Task(
            **fit,
            seed=seed,
            log=log,
            items=items,
            settings=config.model_dump(mode="json"),
            budget_seconds=budget_seconds,
            cutoffs=cutoffs,
            systems_module=systems_module,
            fold=fold,
        )
        for seed in seeds
        for fold in ([None] if folds is None else [Fold(number, folds) for number in range(folds)])
        for fit in fits
    ]


def _varied(label: str, assignments: Sequence[str], *, config: Config) -> dict[str, Any]:
    """The settings of a variant, by section."""
    settings: dict[str, Any] = {}
    for assignment in assignments:
        settings = merge(settings, parse_assignment(assignment))
    changed = Config.resolve(merge(config.model_dump(), settings))
    if _protocol(changed) != _protocol(config):
        raise InputError(f"All systems share log, data, exclude_seen and seed: set them with --set, not for {label!r}.")
    return settings


def _protocol(config: Config) -> Any:
    return config.log, config.data, config.retrieval.exclude_seen, config.training.seed
