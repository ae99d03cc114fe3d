"""One climber for threads and workers: trials, and rests after those that fail."""

from wholegrain._read.hill_climb import HillClimb


def _rest_of(climb: HillClimb) -> int:
    windows = 0
    while climb.is_resting:
        climb.pass_window()
        windows += 1
    return windows


def test_a_trial_that_gains_enough_is_kept() -> None:
    climb = HillClimb(2, first_rest=4, longest_rest=16)
    climb.attempt(4, rate=100.0)
    assert (climb.count, climb.trial) == (4, 2.0)
    assert climb.has_gained(150.0, 1.5)
    assert not climb.has_gained(149.0, 1.5)
    climb.end_trial(keep=True)
    assert (climb.count, climb.trial, climb.is_resting) == (4, 0.0, False)


def test_a_trial_that_fails_is_undone_and_the_rests_become_longer() -> None:
    climb = HillClimb(1, first_rest=4, longest_rest=16)
    rests = []
    for _ in range(4):
        climb.attempt(2, rate=100.0)
        climb.end_trial(keep=False)
        assert (climb.count, climb.trial) == (1, 0.0)
        rests.append(_rest_of(climb))
    assert rests == [4, 8, 16, 16]


def test_after_more_has_helped_the_next_rest_is_short_again() -> None:
    climb = HillClimb(1, first_rest=4, longest_rest=64)
    for keep in (False, False, True, False):
        climb.attempt(2 * climb.count, rate=100.0)
        climb.end_trial(keep=keep)
        rest = _rest_of(climb)
    assert rest == 4


def test_that_fewer_are_enough_does_not_shorten_the_rests() -> None:
    climb = HillClimb(4, first_rest=4, longest_rest=64)
    for count, keep in ((8, False), (3, True), (6, False)):
        climb.attempt(count, rate=100.0)
        climb.end_trial(keep=keep)
        rest = _rest_of(climb)
    assert (climb.count, rest) == (3, 8)


def test_a_trial_can_be_dropped_without_a_verdict() -> None:
    climb = HillClimb(1, first_rest=4, longest_rest=64)
    climb.attempt(2, rate=100.0)
    climb.drop_trial()
    assert (climb.count, climb.trial, climb.is_resting) == (2, 0.0, False)
