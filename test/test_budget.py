"""The budget with given durations: what gives way, how far, and that it comes back."""

import numpy as np
import pytest

from radius_fps_ros.budget import MAX_FEATURES_EVERY, Budget, BudgetSettings


def run(budget, settings, frames, *, fixed=2.0, per_sample=0.002, features=None):
    """Answer frames that take the given milliseconds, as granted; returns the grants."""
    grants = []
    for _ in range(frames):
        grant = budget.grant(settings, features is not None)
        budget.record(grant, fixed, per_sample * grant.samples, features if grant.features else None)
        grants.append(grant)
    return grants


FEATURES = BudgetSettings(budget_ms=100.0, over_budget="features")
SAMPLES = BudgetSettings(budget_ms=10.0, over_budget="samples")


@pytest.mark.parametrize("settings", [FEATURES, SAMPLES, BudgetSettings(1.0, "none")])
def test_nothing_is_withheld_without_need(settings):
    features = 20.0 if settings is FEATURES else None
    fixed = 500.0 if settings.over_budget == "none" else 1.0
    for grant in run(Budget(), settings, 30, fixed=fixed, features=features):
        assert (grant.samples, grant.features_every, grant.reason) == (4096, 1, "")
        assert grant.features == (features is not None)


def test_the_first_frames_withhold_nothing_however_long_they_take():
    grants = run(Budget(), SAMPLES, 4, per_sample=1.0)
    assert [grant.degraded for grant in grants] == [False, False, False, True]
    assert [grant.full_ms for grant in grants[:3]] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("features", "every"), [(99.0, 2), (150.0, 2), (170.0, 3), (700.0, 9), (1e4, MAX_FEATURES_EVERY)]
)
def test_features_are_thinned_until_frames_fit_on_average(features, every):
    settings = FEATURES
    grants = run(Budget(), settings, 60, fixed=1.0, per_sample=9.0 / 4096, features=features)[-30:]
    assert {grant.features_every for grant in grants} == {every}
    assert {grant.samples for grant in grants} == {settings.n_samples}
    assert sum(grant.features for grant in grants) == pytest.approx(30 / every, abs=1)
    mean = 10.0 + features / every
    assert (mean <= settings.budget_ms) == ("even so" not in grants[0].reason)
    assert grants[0].reason.startswith(f"features for one frame in {every}, because a frame with them takes about ")


def test_features_go_as_far_as_they_may_when_even_the_samples_take_too_long():
    (grant,) = run(Budget(), FEATURES, 20, fixed=500.0, features=10.0)[-1:]
    assert grant.features_every == MAX_FEATURES_EVERY
    assert grant.reason.endswith("and budget_ms is 100; even so a frame takes about 509 ms on average")


def test_without_features_there_are_none_to_thin():
    assert not run(Budget(), FEATURES, 20, fixed=500.0)[-1].degraded


def test_a_prefix_that_fits_is_granted():
    (grant,) = run(Budget(), SAMPLES, 20, fixed=3.0, per_sample=0.003)[-1:]
    assert grant.samples == 1792  # (0.9 * 10 - 3) / 0.003 is 2000, and a step 256
    assert grant.reason == "1792 of 4096 samples, because all would take up to 15.3 ms and budget_ms is 10"


def test_times_that_vary_a_little_change_the_number_of_samples_seldom():
    budget, rng = Budget(), np.random.default_rng(0)
    granted = []
    for _ in range(300):
        grant = budget.grant(SAMPLES, features=False)
        budget.record(grant, *rng.normal(1, 0.03, 2) * (3.0, 0.003 * grant.samples), None)
        granted.append(grant.samples)
    assert len(set(granted[20:])) <= 4


def test_never_fewer_than_min_samples():
    (grant,) = run(Budget(), SAMPLES, 20, fixed=50.0, per_sample=0.003)[-1:]
    assert grant.samples == SAMPLES.min_samples
    assert grant.reason.endswith("even so a frame takes about 53.1 ms on average")
    few = BudgetSettings(10.0, "samples", n_samples=100, min_samples=1024)
    assert not run(Budget(), few, 20, fixed=50.0)[-1].degraded, "min_samples asks for no more than n_samples"


def test_the_features_time_counts_where_samples_give_way():
    (grant,) = run(Budget(), SAMPLES, 20, fixed=1.0, per_sample=0.002, features=4.0)[-1:]
    assert grant.samples == 1792  # (0.9 * 10 - 1 - 4) / 0.002 is 2000, and a step 256
    assert grant.features


@pytest.mark.parametrize("settings", [FEATURES, SAMPLES])
def test_two_outliers_do_not_count(settings):
    budget = Budget()
    usual = {"fixed": 1.0, "per_sample": 0.001, "features": 1.0}
    run(budget, settings, 10, **usual)
    run(budget, settings, 2, fixed=1e4, per_sample=50.0, features=1e4)
    assert not any(grant.degraded for grant in run(budget, settings, 20, **usual))


@pytest.mark.parametrize("settings", [FEATURES, SAMPLES])
def test_all_comes_back_when_the_load_falls(settings):
    budget = Budget()
    assert run(budget, settings, 200, fixed=5.0, per_sample=0.02, features=2000.0)[-1].degraded
    grants = run(budget, settings, 50, fixed=1.0, per_sample=0.001, features=1.0)
    assert not grants[-1].degraded
    degraded = sum(grant.degraded for grant in grants)
    assert 0 < degraded <= 3 * MAX_FEATURES_EVERY, "not at once, and not late"


def test_all_comes_back_where_the_first_samples_are_the_dearest():
    # A prefix of 1024 takes 5 ms and all 4096 take 8: by the sample, the prefix seems to forbid the rest.
    budget = Budget()
    run(budget, SAMPLES, 10, fixed=40.0)
    for _ in range(40):
        grant = budget.grant(SAMPLES, features=False)
        budget.record(grant, 0.5, 4.0 + grant.samples / 1024, None)
    assert not grant.degraded


def test_at_the_edge_it_does_not_go_back_and_forth():
    budget, rng = Budget(), np.random.default_rng(0)
    run(budget, SAMPLES, 10, fixed=4.0)  # 12.2 ms: over
    states = []
    for _ in range(200):  # 9.5 ms, a little more or less: within the budget, but not within what is planned with
        grant = budget.grant(SAMPLES, features=False)
        budget.record(grant, 1.3 + rng.uniform(-0.2, 0.2), 0.002 * grant.samples, None)
        states.append(grant.degraded)
    assert all(states)


def test_what_gives_way_may_change_between_frames():
    budget = Budget()
    slow = {"fixed": 3.0, "per_sample": 0.003, "features": 50.0}
    first, second = BudgetSettings(20.0, "features"), BudgetSettings(20.0, "samples", min_samples=100)
    (thinned,) = run(budget, first, 40, **slow)[-1:]
    assert (thinned.samples, thinned.features_every) == (4096, MAX_FEATURES_EVERY)
    (fewer,) = run(budget, second, 1, **slow)
    assert (fewer.samples, fewer.features_every, fewer.features) == (100, 1, True)
    assert not run(budget, BudgetSettings(20.0, "none"), 1, **slow)[0].degraded
