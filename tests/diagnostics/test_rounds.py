from beamtree.diagnostics.rounds import Validation, read_training


def test_rounds_and_steps_are_counted_on() -> None:
    training = {
        "best_round": 1,
        "rounds": [
            {
                "round": 0,
                "steps": 100,
                "seconds": 2.0,
                "validation": {"f@20": 0.1},
                "validations": [{"step": 50, "f@20": 0.08}, {"step": 100, "f@20": 0.1}],
                "moved_share": 0.9,
                "score_before": -20.0,
                "score_after": -10.0,
            },
            {
                "round": 1,
                "steps": 60,
                "seconds": 1.0,
                "validation": {"f@20": 0.2},
                "validations": [{"step": 60, "f@20": 0.2}],
            },
            {"round": 2, "steps": 5, "seconds": 1.0, "validation": {}, "validations": [{"step": 5, "f@20": 0.1}]},
        ],
    }
    found = read_training(training)
    assert found.validations == (Validation(50, 0.08), Validation(100, 0.1), Validation(160, 0.2), Validation(165, 0.1))
    assert [(item.number, item.f, item.moved_share, item.score_after) for item in found.rounds] == [
        (0, 0.1, 0.9, -10.0),
        (1, 0.2, None, None),
        (2, None, None, None),
    ]
    assert found.best_round == 1


def test_a_model_that_remembers_nothing() -> None:
    found = read_training({})
    assert (found.rounds, found.validations, found.best_round) == ((), (), None)
