from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from beamtree.config import PRESETS, Config, PresetName
from beamtree.errors import SettingsError
from beamtree.recommender import DeepTreeRetriever


def fault_lines(error: pytest.ExceptionInfo[SettingsError]) -> list[str]:
    return [line.removeprefix("  - ") for line in str(error.value).splitlines()[1:]]


def test_the_default_preset_is_what_settings_are_without_one() -> None:
    assert Config() == Config.preset("default") == Config.load() == DeepTreeRetriever().config


@pytest.mark.parametrize("name", ["small", "paper"])
def test_a_preset_says_only_where_it_differs_from_the_default(name: PresetName) -> None:
    default, preset = Config().model_dump(mode="json"), Config.preset(name).model_dump(mode="json")
    for section, values in PRESETS[name].items():
        for key in values:
            assert preset[section][key] != default[section][key], f"{section}.{key}"


def test_presets_differ_where_they_should() -> None:
    small, default, paper = (Config.preset(name) for name in ("small", "default", "paper"))
    assert (small.training.most_instances, default.training.most_instances) == (150_000, 1_200_000)
    for ours in (small.training, default.training):
        assert (ours.method, ours.target_horizon, ours.targets_per_history) == ("dtr-t", 10, 10)
    assert (paper.training.target_horizon, paper.training.targets_per_history) == (1, 1)
    assert paper.training.most_instances == 80_000 * paper.training.batch_size
    assert (paper.training.method, paper.training.rounds) == ("dtr-t-rl", 12)
    assert small.model == default.model
    assert small.model.history_length == 20
    assert (small.model.attention_hidden, small.training.negatives) == (16, 30)
    assert (small.model.layers, small.training.batch_size, small.training.epochs) == ((64, 32, 16), 128, 3.0)
    assert (small.training.learning_rate, small.training.warmup_steps, small.training.rounds) == (1e-2, 200, 1)
    assert [each.model.history_table for each in (small, default, paper)] == ["separate", "separate", "shared"]
    assert [each.model.first_vectors for each in (small, default, paper)] == ["cooccurrence", "cooccurrence", "random"]
    assert paper.model.windows == (20, 20, 10, 10, 2, 2, 2, 1, 1, 1)
    assert (paper.model.embedding_dim, paper.model.attention_hidden, paper.model.layers) == (24, 36, (128, 64, 24))
    assert (paper.model.normalisation, paper.model.dropout) == ("batch", 0.1)
    assert (paper.training.learning_rate, paper.training.weight_decay) == (1e-3, 1e-2)
    assert (paper.training.warmup_steps, paper.training.decay, paper.training.negatives) == (5000, "exponential", 70)
    assert (paper.data.protocol, paper.tree.order) == ("paper", "category")
    assert (paper.data.min_interactions, Config().data.min_interactions) == (15, 2)
    assert [each.tree.placement for each in (small, default, paper)] == ["auction", "auction", "published"]
    assert (paper.training.batch_size, paper.training.epochs, paper.training.optimiser) == (100, 1000.0, "adam")
    assert (paper.estimator.width, paper.estimator.layers, paper.estimator.heads) == (24, 4, 2)


def test_sections_override_a_preset_key_by_key() -> None:
    config = Config.preset("small", training={"negatives": 7})
    assert config.training.negatives == 7
    assert config.training.batch_size == 128, "the rest of the preset's section stays"


@pytest.mark.parametrize("make", [lambda: Config.preset("huge"), lambda: Config.load(preset="huge")])  # type: ignore[arg-type]
def test_an_unknown_preset_names_the_known_ones(make: Any) -> None:
    with pytest.raises(SettingsError, match=r"'huge'.*small, default, paper"):
        make()


def test_file_beats_preset_and_assignment_beats_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[training]\nnegatives = 5\nbatch_size = 50\n[tree]\nbranching = 4\n")
    config = Config.load(preset="small", file=file, assignments=["training.batch_size=9", "training.batch_size=10"])
    assert config.training.epochs == 3, "from the preset"
    assert config.training.negatives == 5, "from the file"
    assert config.training.batch_size == 10, "from the last assignment"
    assert config.tree.branching == 4
    overridden = Config.load(assignments=["training.seed=1", "training.epochs=9"], overrides={"training": {"seed": 2}})
    assert (overridden.training.seed, overridden.training.epochs) == (2, 9)


@pytest.mark.parametrize(
    ("assignment", "section", "key", "value"),
    [
        ("training.epochs=2.5", "training", "epochs", 2.5),
        ("training.learning_rate = 1e-4", "training", "learning_rate", 1e-4),
        ("data.holdout=last", "data", "holdout", "last"),
        ('data.holdout="last"', "data", "holdout", "last"),
        ("model.windows=[3, 2, 1]", "model", "windows", (3, 2, 1)),
        ("retrieval.exclude_seen=false", "retrieval", "exclude_seen", False),
        (" training.seed=7", "training", "seed", 7),
    ],
)
def test_assignments_are_read_as_toml_values_or_bare_words(
    assignment: str, section: str, key: str, value: object
) -> None:
    config = Config.load(assignments=[assignment])
    assert getattr(getattr(config, section), key) == value


@pytest.mark.parametrize("assignment", ["epochs=5", "training.epochs", "=5", ".epochs=5", "training.=5", ""])
def test_an_assignment_of_another_form_is_refused(assignment: str) -> None:
    with pytest.raises(SettingsError, match=r"section\.key=value, such as training\.epochs=5"):
        Config.load(assignments=[assignment])


def test_unknown_keys_and_sections_come_with_the_nearest_name() -> None:
    with pytest.raises(SettingsError) as error:
        Config.load(assignments=["training.epoch=5", "trainning.epochs=5", "retrieval.zzz=1"])
    assert set(fault_lines(error)) == {
        "training.epoch is unknown; did you mean training.epochs?",
        "trainning is unknown; did you mean training?",
        "retrieval.zzz is unknown; known: beam_width, exclude_seen",
    }


def test_what_a_log_decides_is_open_until_then_and_recorded_as_it_was() -> None:
    config = Config()
    assert (config.data.min_held_out, config.data.shuffle_ties, config.retrieval.exclude_seen) == (None, None, None)
    with pytest.raises(SettingsError, match="still to be decided by a log"):
        _ = config.retrieval.excludes_seen
    with pytest.raises(SettingsError, match="still to be decided by a log"):
        _ = config.data.decided_min_held_out
    recorded = Config.recorded({})
    assert recorded.data.decided_min_held_out == 1
    assert (recorded.data.shuffle_ties, recorded.retrieval.excludes_seen) == (False, True)


def test_the_seed_of_the_split_is_its_own_or_that_of_the_training() -> None:
    assert Config.resolve({"training": {"seed": 4}}).split_seed == 4
    assert Config.resolve({"training": {"seed": 4}, "data": {"split_seed": 0}}).split_seed == 0


def test_a_log_read_in_row_order_has_no_times_to_choose_by() -> None:
    with pytest.raises(SettingsError) as error:
        Config.resolve({"log": {"row_order": True, "since": 3, "columns": {"timestamp": "when"}}})
    assert [line.split(" is about")[0] for line in fault_lines(error)] == ["log.since", "log.columns.timestamp"]


def test_all_faults_and_contradictions_come_in_one_message() -> None:
    with pytest.raises(SettingsError) as error:
        Config.resolve(
            {
                "data": {"validation_share": 0.6, "test_share": 0.4, "protocol": "paper", "holdout": "time"},
                "tree": {"branching": 1, "order": "sideways"},
                "model": {"windows": [3, 0], "layers": [8, 8]},
                "training": 3,
            }
        )
    lines = fault_lines(error)
    assert str(error.value).startswith("7 settings cannot be used:\n")
    assert len(lines) == 7
    for start in (
        "tree.branching: input should be greater than or equal to 2; got 1",
        "tree.order: input should be 'auto', 'random', 'category' or 'clustering'; got 'sideways'",
        "model.windows.1: input should be greater than or equal to 1; got 0",
        "model.layers: ",
        "training is a section of settings, not a value: write training.key=value",
        "data.validation_share + data.test_share must stay below 1",
        "data.protocol = 'paper' holds out users, data.holdout = 'time' does not",
    ):
        assert sum(line.startswith(start) for line in lines) == 1, start


def test_attention_on_the_last_levels_leaves_the_others_to_other_parts() -> None:
    last = {"attention_levels": 2}
    assert Config.resolve({"model": last}).model.attention_range(9) == range(8, 10)
    with pytest.raises(SettingsError, match=r"without a score, because attention is the only one of model\.parts"):
        Config.resolve({"model": {"parts": ["attention"], **last}})
    with pytest.raises(SettingsError) as error:
        Config.resolve({"model": last, "training": {"rounds": 3}, "tree": {"branching": 1}})
    assert [line.split(",")[0] for line in fault_lines(error)] == [
        "tree.branching: input should be greater than or equal to 2; got 1",
        "training.rounds = 3 learns the tree by scores on all levels",
    ]
    assert Config.resolve({"training": {"rounds": 3}}).training.rounds == 3


@pytest.mark.parametrize(
    "assignment",
    [
        "tree.branching=11",
        "training.learning_rate=nan",
        "training.epochs=0",
        "training.clip_norm=nan",
        "model.dropout=1.0",
        "training.seed=-1",
        "training.seed=4294967296",
        "training.negatives=many",
    ],
)
def test_values_out_of_range_are_refused(assignment: str) -> None:
    key, _, value = assignment.partition("=")
    with pytest.raises(SettingsError, match=rf"1 setting cannot be used:\n  - {key}: .*; got '?{value}"):
        Config.load(assignments=[assignment])


def test_recorded_settings_that_are_none_any_more_are_dropped() -> None:
    recorded = Config.preset("paper").model_dump(mode="json")
    recorded["tree"] |= {"assignment": "residents", "moved_rows": "stay", "stride": None, "instances_per_item": None}
    recorded["training"] |= {"rectification": "soft", "soft_items": 3, "soft_share": 0.2, "depth_slope": 0.0}
    recorded["training"] |= {"path_start": "root", "path_correction": "negatives", "path_mode": "evaluation"}
    assert Config.recorded(recorded) == Config.preset("paper")
    with pytest.raises(SettingsError, match=r"training\.rectification is unknown"):
        Config.load(assignments=["training.rectification=soft"])


def test_settings_cannot_be_changed() -> None:
    config = Config()
    with pytest.raises(ValidationError, match="frozen"):
        config.training.seed = 1  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        config.training = config.training  # type: ignore[misc]


def test_overriding_a_preset_leaves_the_preset_alone() -> None:
    before = repr(PRESETS)
    Config.preset("small", training={"negatives": 7})
    Config.load(preset="small", assignments=["model.layers=[1,1,1]"])
    assert repr(PRESETS) == before


def test_what_is_dumped_resolves_to_the_same_settings() -> None:
    config = Config.preset("paper", training={"epochs": 0.125})
    assert Config.resolve(config.model_dump(mode="json")) == config
    assert Config.recorded(config.model_dump(mode="json")) == config
    assert Config.recorded(Config().model_dump(mode="json")) == Config()


def test_what_was_recorded_before_a_setting_existed_keeps_its_meaning() -> None:
    """A random start, one target, the very next, and no limit but the epochs: there was nothing else."""
    written = Config().model_dump(mode="json")
    del written["model"]["first_vectors"], written["estimator"]["first_vectors"]
    for key in ("target_horizon", "targets_per_history", "most_instances"):
        del written["training"][key]
    then = Config.recorded(written)
    assert (then.model.first_vectors, then.estimator.first_vectors) == ("random", "random")
    training = then.training
    assert (training.target_horizon, training.targets_per_history, training.most_instances) == (1, 1, None)


def test_an_estimator_that_was_recorded_in_windows_and_epochs_keeps_its_meaning() -> None:
    then = Config.recorded({"estimator": {"batch_size": 32, "negatives": None, "epochs": 12}}).estimator
    assert (then.batch_positions, then.negatives, then.history_length) == (32 * 69, "all", 69)
    assert (then.epochs, then.validations, then.decay, then.most_positions) == (12, 12, "constant", None)


@pytest.mark.parametrize(
    ("negatives", "of_few", "of_many"), [("auto", None, 1000), ("all", None, None), (500, 500, 500), (9000, None, 9000)]
)
def test_negatives_are_drawn_from_large_catalogues_or_as_many_as_said(
    negatives: Any, of_few: int | None, of_many: int | None
) -> None:
    settings = Config.resolve({"estimator": {"negatives": negatives}}).estimator
    assert (settings.negatives_of(9000), settings.negatives_of(10_001)) == (of_few, of_many)
    with pytest.raises(SettingsError, match=r"estimator\.negatives"):
        Config.resolve({"estimator": {"negatives": "some"}})


@pytest.mark.parametrize(
    ("content", "message"), [(None, "Cannot read the settings file"), (b"a = = 1", "not valid TOML"), (b"\xff", "TOML")]
)
def test_a_settings_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "settings.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match=message) as error:
        Config.load(file=file)
    assert str(file) in str(error.value)
