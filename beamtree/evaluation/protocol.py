"""The evaluation protocol on held-out users, the same for every system."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Histories, Requests
from beamtree.data.sequences import Sequences
from beamtree.data.split import Fold, HeldOut, Split, split_by_time, split_leave_last_out, split_none, split_users
from beamtree.errors import InputError
from beamtree.evaluation.answers import Answers
from beamtree.evaluation.labels import reachable_labels
from beamtree.evaluation.metrics import Metrics, measure

CUTOFFS = (20, 40)


def checked_cutoffs(cutoffs: int | Iterable[int]) -> tuple[int, ...]:
    """Distinct cutoffs in rising order; InputError where there is none or one is no positive integer."""
    listed = [cutoffs] if isinstance(cutoffs, int) else list(cutoffs)
    is_right = [isinstance(one, int) and not isinstance(one, bool) and one >= 1 for one in listed]
    if not listed or not all(is_right):
        raise InputError(f"Expected cutoffs as positive integers, such as 5, 10, 20; got {listed!r}.")
    return tuple(sorted(set(listed)))


def split_dataset(dataset: Dataset, *, config: Config, fold: Fold | None = None) -> Split:
    """Hold out what the settings say; SettingsError where data.min_held_out is still to be decided by a log.

    fold: where users are held out, which of them, instead of shares.
    """
    data, seed = config.data, config.split_seed
    match data.holdout:
        case "users":
            return split_users(
                dataset.sequences,
                seed=seed,
                min_held_out=data.decided_min_held_out,
                validation_share=data.validation_share,
                test_share=data.test_share,
                protocol=data.protocol,
                fold=fold,
            )
        case "last":
            return split_leave_last_out(dataset.sequences, seed=seed, min_held_out=data.decided_min_held_out)
        case "time":
            return split_by_time(
                dataset,
                seed=seed,
                min_held_out=data.decided_min_held_out,
                validation_share=data.validation_share,
                test_share=data.test_share,
            )
        case "none":
            return split_none(dataset.sequences)


def describe_protocol(config: Config, measured: Metrics | None = None) -> str:
    """The protocol in a sentence, printed with every table. measured: metrics, for the number of excluded labels."""
    types = config.log.target_events
    labels = f"labels of type {' or '.join(types)}" if types else "labels"
    if config.data.protocol == "paper":
        return f"protocol paper: repeated {labels} count each time, seen items may be recommended"
    if not config.retrieval.excludes_seen:
        return f"protocol clean: distinct {labels}, seen items may be recommended"
    sentence = f"protocol clean: distinct {labels} not seen before, seen items are not recommended"
    if measured is None or measured.num_seen_labels == 0:
        return sentence
    left_out = f" (users left out for that: {measured.num_left_out:,})" if measured.num_left_out else ""
    return f"{sentence}; {measured.num_seen_labels:,} labels that were seen before do not count{left_out}"


def excludes_seen(config: Config) -> bool:
    """Whether items of the history are excluded."""
    return config.retrieval.excludes_seen and config.data.protocol != "paper"


def evaluate(
    system: Answers, dataset: Dataset, users: HeldOut, *, config: Config, cutoffs: Sequence[int] = CUTOFFS
) -> Metrics:
    """Metrics of a system over all held-out users with a label that can be recommended.

    Items that were added to a model after the data set may be recommended: they count as misses.
    """
    reachable = reachable_labels(users, dataset.sequences, config=config)
    requests = held_out_requests(dataset, reachable.users, exclude_seen=reachable.excludes_seen)
    recommended = system.search(requests, k=max(cutoffs)).items
    num_items = max(len(dataset.items), int(recommended.max()) + 1)
    measured = measure(recommended, reachable.labels, num_items=num_items, cutoffs=cutoffs)
    return replace(measured, num_seen_labels=reachable.num_seen_labels, num_left_out=reachable.num_left_out)


def held_out_requests(dataset: Dataset, users: HeldOut, *, exclude_seen: bool) -> Requests:
    """Requests of held-out users: whole histories, times and excluded items.

    They have the features of the user and the context of the first held-out interaction.
    """
    last, features = users.history_end - 1, dataset.features
    return Requests(
        Histories(dataset.sequences.items, users.history_start, users.history_end),
        excluded=Sequences(*users.seen(dataset.sequences)) if exclude_seen else None,
        users=users.user,
        times=None if dataset.timestamps is None else dataset.timestamps[last],
        user_features=None if features.users is None else features.users.take(users.user),
        context=None if features.contexts is None else features.contexts.take(users.label_start),
    )
