"""beamtree fit: from a log to a saved model."""

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from beamtree.cli.console import fit_progress, messages, results, show_comparison
from beamtree.cli.log_options import LogOptions
from beamtree.cli.option_groups import OptionGroup, takes_option_groups
from beamtree.cli.options import (
    ClusterOptions,
    ItemColumnOption,
    ItemsOption,
    LogArgument,
    UsersOption,
    estimators_beside,
    parse_pairs,
)
from beamtree.cli.output import check_model_folder
from beamtree.cluster.connection import connected
from beamtree.cluster.reading import read_log_on_cluster
from beamtree.config import Config, PresetName
from beamtree.config.data_sections import ITEMS
from beamtree.config.loading import merge
from beamtree.data.interactions import read_log
from beamtree.errors import InputError
from beamtree.evaluation.protocol import describe_protocol
from beamtree.progress import bullet_list
from beamtree.recommender import DeepTreeRetriever
from beamtree.storage import MANIFEST
from beamtree.training.checkpoint import OWNER
from beamtree.training.exclusive import claimed_folder

Holdout = Literal["users", "last", "time", "none"]
Method = Literal["dtr-u", "dtr-t", "dtr-t-rl"]


@dataclass(frozen=True, kw_only=True)
class NamedSettings(OptionGroup):
    """Settings with an option of their own."""

    holdout: Annotated[
        Holdout | None, typer.Option(help="What to evaluate on; none: refit on everything before shipping.")
    ] = None
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None
    method: Annotated[
        Method | None,
        typer.Option(help="dtr-u: uniform negatives; dtr-t: top-down negatives; dtr-t-rl: and rectified labels."),
    ] = None
    rounds: Annotated[int | None, typer.Option(help="Rounds of training the model and relearning the tree.")] = None
    branching: Annotated[int | None, typer.Option(help="Children per inner node of the tree.")] = None
    embedding_dim: Annotated[int | None, typer.Option(help="Dimension of the node embeddings.")] = None
    negatives: Annotated[int | None, typer.Option(help="Negatives per level.")] = None

    def sections(self) -> dict[str, dict[str, Any]]:
        """Those that were given, by section."""
        sections = {"data": ["holdout"], "tree": ["branching"], "model": ["embedding_dim"]}
        sections["training"] = ["seed", "method", "rounds", "negatives"]
        return {
            section: {name: value for name in names if (value := getattr(self, name)) is not None}
            for section, names in sections.items()
        }


@takes_option_groups
def fit(
    log: LogArgument,
    *,
    items: ItemsOption = None,
    item_column: ItemColumnOption = None,
    users: UsersOption = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the model.")] = Path("models/beamtree"),
    preset: Annotated[
        PresetName,
        typer.Option(help="instant: seconds; small: minutes; default: within an hour; paper: as published, for days."),
    ] = "default",
    config: Annotated[Path | None, typer.Option(help="Settings as TOML, on top of the preset.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="One setting: training.epochs=5. Repeat as needed.")
    ] = None,
    named: NamedSettings,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the checkpoint of an unfinished fit, if there is one.")
    ] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Discard the checkpoint of an unfinished fit.")] = False,
    estimator_cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder in which runs with the same data, split and settings share the estimator of dtr-t-rl; default "
            "OUT.estimator."
        ),
    ] = None,
    log_json: Annotated[Path | None, typer.Option(help="Append one JSON line per event to this file.")] = None,
    machines: ClusterOptions,
    reading: LogOptions,
) -> None:
    """Train a model on a log and save it.

    Ctrl-C stops after the current step; --resume continues from there, or from the last checkpoint after a crash, and
    ends with the same weights as an uninterrupted run.

    Precedence, lowest first: preset, --config, --set, named options (--seed, --method, --rounds, ...).
    """
    item_columns = parse_pairs(item_column, option="--item-column", form="OURS=THEIRS")
    if item_columns and items is None:
        raise InputError("--item-column names columns of the item table: give that too, with --items TABLE.")
    columns = {"columns": {ITEMS + ours: name for ours, name in item_columns.items()}}
    overrides = {"log": merge(reading.settings(), columns), **named.sections()}
    chosen = Config.load(preset=preset, file=config, assignments=settings or [], overrides=overrides)
    if estimator_cache is not None and not chosen.training.asks_estimator:
        raise InputError(
            f"--estimator-cache keeps the estimator of --method dtr-t-rl; the method here is {chosen.training.method}, "
            "which asks none. Leave it out, or change the method."
        )
    cluster, out = machines.chosen(), out.absolute()
    work_dir = out.parent / f"{out.name}.checkpoint"
    estimators = estimator_cache or estimators_beside(out)
    with claimed_folder(out, otherwise="give another folder with --out"), ExitStack() as opened:
        is_unfinished = chosen.training.asks_estimator and any(estimators.glob(f"*.unfinished/{MANIFEST}"))
        _check_folders(out, work_dir, resume=resume, restart=restart, has_estimator=is_unfinished)

        if cluster is None:
            interactions = read_log(log, chosen.log, rejects_file=reading.rejects)
        else:
            opened.enter_context(connected(cluster))
            interactions = read_log_on_cluster(
                cluster, log, chosen.log, work_dir=work_dir, resume=resume, rejects_file=reading.rejects
            )
        model = DeepTreeRetriever(chosen)
        with fit_progress(log_json) as listen:
            model.fit(
                interactions,
                items,
                users=users,
                work_dir=work_dir,
                resume=resume,
                estimator_cache=estimators,
                cluster=cluster,
                listen=listen,
            )
        model.save(out)
        shutil.rmtree(work_dir, ignore_errors=True)
    report(model)
    model.write_card(out)  # with the baselines of the report
    results.print(f"\nSaved to {out}. Next:", markup=False)
    results.print(f"  beamtree recommend {out} --history ID,ID,ID", markup=False)
    results.print(f"  beamtree evaluate {out} --log {log}", markup=False)


def report(model: DeepTreeRetriever) -> None:
    """Print the split, the training time and the metrics on the test users."""
    artefact = model.recommender.artefact
    training = artefact.training
    learned = f"{training['instances']:,} training instances, {training['seconds']} s"
    messages.print(bullet_list([str(training["split"]), learned, *_estimator_share(training)]))
    if "test" in artefact.metrics:
        comparison = model.evaluate(exact=False)
        protocol = describe_protocol(model.config, next(iter(comparison.values())))
        show_comparison(comparison, title=f"Test users ({protocol})")


def _estimator_share(training: Mapping[str, Any]) -> list[str]:
    """How much of the time rectified labels took, where there were any."""
    if "estimator_seconds" not in training:
        return []
    estimator, labels, whole = training["estimator_seconds"], training["labels_seconds"], training["seconds"]
    spent = f"{estimator / whole:.0%} of the time ({estimator} s)" if whole else f"{estimator} s"
    if training["estimator_reused"]:
        spent = f"reused, {estimator} s when it was trained"
    return [f"estimator: {spent}; its labels: {labels} s"]


def _check_folders(out: Path, work_dir: Path, *, resume: bool, restart: bool, has_estimator: bool) -> None:
    """Refuse to overwrite what this command did not make, before any work begins.

    has_estimator: one was left unfinished; it is found by its own settings and goes on, whatever the options say.
    """
    if resume and restart:
        raise InputError("--resume goes on from the checkpoint and --restart throws it away: give one of them.")
    check_model_folder(out)
    has_checkpoint = any(manifest.parent.name != OWNER for manifest in work_dir.glob(f"**/{MANIFEST}"))
    if resume and not has_checkpoint and not has_estimator:
        messages.print("There is no checkpoint to resume yet: starting from the beginning.")
    if restart and not has_checkpoint:
        messages.print("There is no checkpoint to throw away: starting from the beginning.")
    if has_checkpoint and restart:
        shutil.rmtree(work_dir)
    elif has_checkpoint and not resume:
        raise InputError(
            f"{work_dir} holds the checkpoint of an unfinished fit. Go on from it with --resume, or throw it away with "
            "--restart."
        )
