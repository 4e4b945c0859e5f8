"""Rectified labels from counts, on a tree small enough to draw.

     0
 1       2
3 4     5 6       item i on leaf i
"""

import numpy as np

from beamtree.tree.build import plant
from research.perturbation import count_preferences, label_changes, labels_of
from tests.small import sequences_of

TREE = plant(np.arange(4), branching=2)


def test_probabilities_are_shares_of_a_users_interactions() -> None:
    found = count_preferences(sequences_of([[0, 1, 0, 3], [2]]), TREE)
    assert found.users.tolist() == [0, 0, 0, 1]
    assert found.leaves.tolist() == [0, 1, 3, 2]
    assert found.probabilities.tolist() == [0.5, 0.25, 0.25, 1.0]


def test_an_item_wins_where_it_is_the_likeliest_below_its_ancestor() -> None:
    """On level 1 item 0 beats 1 and item 3 stands alone; leaves win always."""
    preferences = count_preferences(sequences_of([[0, 1, 0, 3], [3, 2]]), TREE)
    labels = labels_of(preferences.probabilities, preferences, TREE)
    assert labels.tolist() == [[True, False, True, True, False], [True] * 5], "a tie goes to the leftmost leaf"


def test_only_what_noise_can_overturn_changes() -> None:
    """A share of 3/4 against 1/4 stands any noise below 1/4; a tie is broken by the smallest."""
    firm = count_preferences(sequences_of([[0, 0, 0, 1]] * 200), TREE)
    assert label_changes(firm, TREE, thresholds=(1e-7, 0.2), generator=np.random.default_rng(0)) == [0.0, 0.0]
    tied = count_preferences(sequences_of([[0, 1]] * 400), TREE)
    (changed,) = label_changes(tied, TREE, thresholds=(1e-7,), generator=np.random.default_rng(0))
    # The second item wins where its noise is up and the first one's down, a quarter of the users: then both labels of
    # level 1 change, and none of level 2.
    assert abs(changed - 0.125) < 0.03
