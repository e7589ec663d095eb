"""Draws counted against a law: the test statistic, the rules to try, and the file."""

import math
from pathlib import Path

import pytest

from spec_core import draws
from spec_core.draws import Arm, Experiment, Spot, beyond, play, verdict
from spec_core.trace import Network, Sampling, TraceError

P = (0.5, 0.2, 0.15, 0.1, 0.05)
Q = (0.3, 0.4, 0.05, 0.05, 0.2)
TABLE = ((3.841, 1), (5.991, 2), (11.070, 5), (18.307, 10), (124.342, 100), (113.145, 90))  # where 5 % lie beyond


@pytest.mark.parametrize(("x", "df"), TABLE)
def test_the_tail_of_chi_square_is_the_tables(x: float, df: int) -> None:
    assert beyond(x, df) == pytest.approx(0.05, abs=2e-4)


def test_the_tail_at_its_ends() -> None:
    assert beyond(0.0, 4) == 1.0
    assert beyond(1e4, 3) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("rule", draws.RULES)
def test_right_rules_give_the_targets_law_and_wrong_ones_are_caught(rule: draws.Rule) -> None:
    counts = play(rule, P, Q, 20_000, seed=3).counts
    assert sum(counts) == 20_000
    assert verdict(counts, P).fits == (rule in draws.RIGHT)


def test_how_often_a_guess_holds_is_what_the_rules_say() -> None:
    """reject: Σ min(p, q); match: Σ p q, which is less."""
    pairs = list(zip(P, Q, strict=True))
    wanted = {"reject": sum(min(p, q) for p, q in pairs), "match": sum(p * q for p, q in pairs)}
    for rule, share in wanted.items():
        found = play(rule, P, Q, 20_000, seed=4).accepted / 20_000  # type: ignore[arg-type]
        assert found == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / 20_000))


def test_the_same_seed_draws_the_same() -> None:
    assert play("reject", P, Q, 500, 1) == play("reject", P, Q, 500, 1) != play("reject", P, Q, 500, 2)


def test_equal_laws_never_refuse() -> None:
    assert play("reject", P, P, 500, 1).accepted == 500


def test_rare_continuations_are_counted_together() -> None:
    """Six cells expected 4 times each are one cell of 24: df is 2, not 7."""
    law = [0.5, 0.38, *[0.02] * 6]
    found = verdict([100, 76, *[4] * 6], law)
    assert (found.x, found.df, found.chance) == (pytest.approx(0.0, abs=1e-9), 2, 1.0)


def test_what_the_law_never_gives_is_no_chance() -> None:
    assert verdict([50, 49, 1], [0.5, 0.5, 0.0]).chance == 0.0
    assert verdict([50, 50, 0], [0.5, 0.5, 0.0]).fits


def sample() -> Experiment:
    network = Network("toy", "hash", 1, 2, 3, 4, 5)
    spot = Spot([1, 2], 3, [[4, 5]], [0.25, 0.75], [Arm("plain", {}, [20, 80], 0, 0), Arm("x", {}, [9, 91], 9, 3, "p")])
    return Experiment("id", "2026-11-30", "cpu", "float32", network, {}, "story", Sampling(1.0), 100, [spot], {4: " a"})


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    draws.save(sample(), tmp_path / "draws.json")
    assert draws.load(tmp_path / "draws.json") == sample()


def test_another_file_is_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "empty.json").write_bytes(b"")
    for name in ("bad.json", "empty.json", "missing.json"):
        with pytest.raises(TraceError, match="is no sampling experiment"):
            draws.load(tmp_path / name)


def test_the_shipped_experiment_catches_just_the_spoilt_arms() -> None:
    found = draws.load(Path(__file__).parents[2] / "assets/measurements/draws.json")
    for spot in found.spots:
        assert len(spot.law) == len(spot.continuations) + 1
        assert sum(spot.law) == pytest.approx(1, abs=1e-4)
        for arm in spot.arms:
            assert sum(arm.counts) == found.draws
            assert verdict(arm.counts, spot.law).fits == (not arm.wrong), (arm.method, arm.wrong)
        assert {arm.wrong for arm in spot.arms} > {""}
