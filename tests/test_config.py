from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from beamtree.config import PRESETS, PUBLISHED_NETWORK, Config, NetworkSpec, PresetName, TrainingSchedule
from beamtree.config.specs import PUBLISHED_ENCODER, PUBLISHED_SCHEDULE
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
    assert (small.training.max_instances, default.training.max_instances) == (150_000, 1_200_000)
    for ours in (small.training, default.training):
        assert (ours.method, ours.target_horizon) == ("dtr-t", 10)
    assert paper.training.target_horizon == 1
    assert paper.training.max_instances == 80_000 * paper.training.batch_size
    assert (paper.training.method, paper.training.rounds) == ("dtr-t-rl", 12)
    assert small.model == default.model
    assert small.model.attention_history == 20
    assert (small.model.network.attention_hidden, small.training.negatives) == (16, 30)
    assert (small.model.layers, small.training.batch_size, small.training.epochs) == ((64, 32, 16), 128, 3.0)
    assert (small.training.learning_rate, small.training.schedule.warmup_steps, small.training.rounds) == (1e-2, 200, 1)
    assert (small.training.schedule.validations, small.estimator.recipe.validations) == (3, 3)
    assert (default.training.schedule.validations, default.estimator.recipe.validations) == (10, 8)
    assert [each.model.network.history_table for each in (small, default, paper)] == ["separate", "separate", "shared"]
    assert [each.model.network.embedding_init for each in (small, default)] == 2 * ["cooccurrence"]
    network, schedule, recipe = paper.model.network, paper.training.schedule, paper.estimator.recipe
    assert (network, schedule, recipe) == (PUBLISHED_NETWORK, PUBLISHED_SCHEDULE, PUBLISHED_ENCODER)
    assert paper.model.windows == (20, 20, 10, 10, 2, 2, 2, 1, 1, 1)
    assert paper.model.attention_history == paper.encoder_history == 69
    assert (paper.model.embedding_dim, network.attention_hidden, paper.model.layers) == (24, 36, (128, 64, 24))
    assert (network.normalisation, network.dropout, network.embedding_init) == ("batch", 0.1, "random")
    assert (paper.training.learning_rate, schedule.weight_decay) == (1e-3, 1e-2)
    assert (schedule.warmup_steps, schedule.decay, paper.training.negatives) == (5000, "exponential", 70)
    assert (paper.data.protocol, paper.tree.order) == ("paper", "category")
    assert (paper.data.min_interactions, Config().data.min_interactions) == (15, 2)
    assert [each.tree.placement for each in (small, default, paper)] == ["auction", "auction", "published"]
    assert (paper.training.batch_size, paper.training.epochs, schedule.optimiser) == (100, 1000.0, "adam")
    assert (paper.estimator.width, paper.estimator.num_layers, paper.estimator.heads) == (24, 4, 2)


@pytest.mark.parametrize(
    ("length", "windows"),
    [(20, (10, 5, 2, 1, 1, 1)), (40, (20, 10, 4, 2, 2, 2)), (6, (3, 1, 1, 1)), (1, (1,)), (69, None), (7, None)],
)
def test_windows_follow_from_the_length_of_the_history(length: int, windows: tuple[int, ...] | None) -> None:
    for network in ("default", "published"):
        found = Config.resolve({"model": {"history_length": length, "network": network}}).model.windows
        assert sum(found) == length
        assert list(found) == sorted(found, reverse=True), "older windows are longer"
    if windows is not None:
        assert Config.resolve({"model": {"history_length": length}}).model.windows == windows


def test_a_spec_is_a_name_or_a_table_of_what_differs_from_the_default() -> None:
    by_name = Config.load(assignments=["model.network=published", "training.schedule=published"])
    assert (by_name.model.network, by_name.training.schedule) == (PUBLISHED_NETWORK, PUBLISHED_SCHEDULE)
    one_field = Config.load(preset="paper", assignments=["model.network.dropout=0", "training.schedule=default"])
    assert one_field.model.network == PUBLISHED_NETWORK.model_copy(update={"dropout": 0.0}), "the preset's others stay"
    assert one_field.training.schedule == TrainingSchedule()
    passed = Config.preset("default", model={"network": NetworkSpec(dropout=0.5)})
    assert passed == Config.load(assignments=["model.network={dropout=0.5}"])
    with pytest.raises(SettingsError) as error:
        Config.load(assignments=["model.network=huge", "estimator.recipe.layer=2", "training.schedule.clip_norm=nan"])
    assert "did you mean estimator.recipe.layers?" in str(error.value)
    assert [line.split(";")[0] for line in fault_lines(error)] == [
        "model.network: expected 'default' or 'published', or a table of its fields",
        "estimator.recipe.layer is unknown",
        "training.schedule.clip_norm: input should be greater than 0",
    ]


def test_columns_features_and_filters_are_tables() -> None:
    log = Config.load(
        assignments=[
            "log.columns.user_id=Kunde",
            "log.columns.items.title=Name",
            'log.features={items={price="number"}, users={age="number"}, context={device="category"}}',
            "log.keep={min_rating=3, since='2024-01-01', action=['buy', 'cart']}",
        ]
    ).log
    assert (log.interaction_columns, log.item_columns) == ({"user_id": "Kunde"}, {"title": "Name"})
    assert log.item_features == {"price": "number"}
    assert (log.user_features, log.context_features) == ({"age": "number"}, {"device": "category"})
    assert (log.min_rating, log.since, log.until) == (3.0, "2024-01-01", None)
    assert log.event_type == {"action": ["buy", "cart"]}
    assert not log.row_order
    with pytest.raises(SettingsError) as error:
        Config.resolve(
            {
                "log": {
                    "features": {"price": "number", "context.hour": "ignore"},
                    "keep": {"action": "buy", "since": ["a"], "min_rating": "high"},
                }
            }
        )
    assert [line.split(":")[0] for line in fault_lines(error)] == [
        "log.features",
        "log.features.context.hour",
        "log.keep.action",
        "log.keep.since",
        "log.keep.min_rating",
    ]


def test_weights_that_are_fixed_have_known_names_and_ranges() -> None:
    fixed = {"tower": 2.0, "repeats": -3.0, "fade": 0.5, "trend": 0.0}
    assert Config.resolve({"model": {"weights": fixed}}).model.weights == fixed
    with pytest.raises(SettingsError) as error:
        Config.resolve(
            {"model": {"weights": {"towers": 1, "company": -1, "fade": 0, "trend": 1, "popularity": float("inf")}}}
        )
    assert [line.split(":")[0].split(" ")[0] for line in fault_lines(error)] == [
        f"model.weights.{name}" for name in ("towers", "company", "fade", "trend", "popularity")
    ]


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
        ("model.layers=[3, 2, 1]", "model", "layers", (3, 2, 1)),
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
    assert (config.data.min_held_out, config.decided.shuffle_ties, config.retrieval.exclude_seen) == (None, None, None)
    with pytest.raises(SettingsError, match="still to be decided by a log"):
        _ = config.retrieval.excludes_seen
    with pytest.raises(SettingsError, match="still to be decided by a log"):
        _ = config.data.decided_min_held_out
    with pytest.raises(SettingsError, match="still to be decided by a log"):
        _ = config.encoder_history
    recorded = Config.recorded({})
    assert recorded.data.decided_min_held_out == 1
    assert (recorded.decided.shuffle_ties, recorded.retrieval.excludes_seen) == (False, True)


def test_the_seed_of_the_split_is_its_own_or_that_of_the_training() -> None:
    assert Config.resolve({"training": {"seed": 4}}).split_seed == 4
    assert Config.resolve({"training": {"seed": 4}, "data": {"split_seed": 0}}).split_seed == 0


def test_a_log_read_in_row_order_has_no_times_to_choose_by() -> None:
    with pytest.raises(SettingsError) as error:
        Config.resolve({"log": {"keep": {"since": 3}, "half_life_days": 2, "columns": {"timestamp": "#row"}}})
    assert [line.split(" is about")[0] for line in fault_lines(error)] == ["log.keep.since", "log.half_life_days"]


def test_all_faults_and_contradictions_come_in_one_message() -> None:
    with pytest.raises(SettingsError) as error:
        Config.resolve(
            {
                "data": {"held_out_shares": (0.6, 0.4), "protocol": "paper", "holdout": "time"},
                "tree": {"branching": 1, "order": "sideways"},
                "model": {"network": {"windows": [3, 0]}, "layers": []},
                "training": 3,
            }
        )
    lines = fault_lines(error)
    assert str(error.value).startswith("7 settings cannot be used:\n")
    assert len(lines) == 7
    for start in (
        "tree.branching: input should be greater than or equal to 2; got 1",
        "tree.order: input should be 'auto', 'random', 'category' or 'clustering'; got 'sideways'",
        "model.network.windows.1: input should be greater than or equal to 1; got 0",
        "model.layers: ",
        "training is a section of settings, not a value: write training.key=value",
        "data.held_out_shares must add up to less than 1",
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
        "training.schedule.clip_norm=nan",
        "model.network.dropout=1.0",
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
    tree = {"assignment": "residents", "moved_rows": "stay", "stride": None, "instances_per_item": None}
    training = {"rectification": "soft", "soft_items": 3, "soft_share": 0.2, "depth_slope": 0.0}
    training |= {"path_start": "root", "path_correction": "negatives", "path_mode": "evaluation"}
    assert Config.recorded({"tree": tree, "training": training}) == Config.recorded({})
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
    then = Config.recorded({})
    assert (then.model.network.embedding_init, then.estimator.recipe.embedding_init) == ("random", "random")
    assert (then.training.target_horizon, then.training.max_instances) == (1, None)
    assert (then.model.parts, then.encoder_history) == (("attention",), 69)


def test_what_was_recorded_under_other_names_keeps_its_meaning() -> None:
    then = Config.recorded(
        {
            "log": {
                "columns": {"user_id": "u"},
                "item_columns": {"title": "t"},
                "item_features": {"price": "number"},
                "context_features": {"device": "category"},
                "event_type": {"action": ["buy"]},
                "min_rating": 3.0,
                "since": None,
                "row_order": True,
            },
            "data": {"validation_share": 0.2, "test_share": 0.3, "shuffle_ties": True},
            "model": {"windows": [2, 2, 1], "normalisation": "layer", "first_vectors": "cooccurrence"},
            "memory": {"transitions": 0.5, "company": None, "trend": False, "window": 3, "megabytes": 50.0},
            "training": {"most_instances": 7, "decay": "constant", "targets_per_history": 4, "path_mode": "training"},
            "estimator": {"weight": 2.0, "history_length": 9, "layers": 2, "heads": 4, "most_positions": 11, "seed": 1},
        }
    )
    assert then.log.interaction_columns == {"user_id": "u"}
    assert (then.log.item_columns, then.log.row_order) == ({"title": "t"}, True)
    assert (then.log.item_features, then.log.context_features) == ({"price": "number"}, {"device": "category"})
    assert then.log.keep == {"min_rating": 3.0, "action": ["buy"]}
    assert (then.data.validation_share, then.data.test_share, then.decided.shuffle_ties) == (0.2, 0.3, True)
    assert (then.model.windows, then.model.network.normalisation) == ((2, 2, 1), "layer")
    assert then.model.network.embedding_init == "cooccurrence"
    assert then.model.weights == {"tower": 2.0, "transitions": 0.5, "trend": 0.0}
    assert (then.model.memory_megabytes, then.encoder_history) == (50.0, 9)
    assert (then.training.max_instances, then.training.schedule.decay) == (7, "constant")
    assert (then.estimator.num_layers, then.estimator.max_positions) == (2, 11)
    with pytest.raises(SettingsError, match=r"model\.unheard_of is unknown"):
        Config.recorded({"model": {"unheard_of": 1}})


@pytest.mark.parametrize(
    ("negatives", "of_few", "of_many"), [("auto", None, 1000), ("all", None, None), (500, 500, 500), (9000, None, 9000)]
)
def test_negatives_are_drawn_from_large_catalogues_or_as_many_as_said(
    negatives: Any, of_few: int | None, of_many: int | None
) -> None:
    settings = Config.resolve({"estimator": {"recipe": {"negatives": negatives}}}).estimator
    assert (settings.negatives_of(9000), settings.negatives_of(10_001)) == (of_few, of_many)
    with pytest.raises(SettingsError, match=r"estimator\.recipe\.negatives"):
        Config.resolve({"estimator": {"recipe": {"negatives": "some"}}})


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
