"""What is printed of a certificate is as true as the certificate: numbers are rounded outward."""

import io
import re
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radius_fps_ros.cli import certify, certify_picture
from radius_fps_ros.hausdorff import Progress, Status, certify_hausdorff, prepare_mesh
from radius_fps_ros.hausdorff.rounding import printed_above, printed_below, printed_interval

from . import shapes

# An upper bound whose decimal is shorter than its value, lower bounds in all sizes, neighbours of round numbers.
VALUES = [0.0, 5e-324, 1e-300, 0.1, 1 / 3, 2 / 3, 1.0, np.nextafter(1.0, 2.0), np.nextafter(1.0, 0.0), 123456789.987654,
          999999999.5, 1e17, 1e100, 1.7e308]  # fmt: skip


def numbers(text):
    """The exact numbers of the first ``[a, b]`` in a text."""
    return [Fraction(end) for end in re.search(r"\[([^],]+), ([^],]+)\]", text).groups()]


@pytest.mark.parametrize("digits", [2, 9, 17])
@pytest.mark.parametrize("value", VALUES)
def test_a_printed_bound_is_still_a_bound_and_near(value, digits):
    below, above = Fraction(printed_below(value, digits)), Fraction(printed_above(value, digits))
    assert below <= Fraction(value) <= above
    assert above - below <= Fraction(value) * Fraction(10) ** (1 - digits)


@given(st.floats(0, 1e200), st.floats(0, 1e200), st.integers(1, 17))
def test_a_printed_interval_contains_the_interval(a, b, digits):
    lower, upper = sorted((a, b))
    low, high = numbers(printed_interval(lower, upper, digits))
    assert low <= Fraction(lower) <= Fraction(upper) <= high


def test_short_numbers_stay_short():
    assert printed_interval(0.0, 0.25) == "[0, 0.25]"
    assert printed_interval(1 / 3, 2 / 3, 3) == "[0.333, 0.667]"
    assert printed_interval(100.0, 2e20, 3) == "[100, 2e+20]"
    assert printed_above(6.81e-9, 2) == "6.9e-9"


@pytest.mark.parametrize("threshold", [0.05, 0.1, 0.0500000001, 3.0, 1e-9])
def test_the_threshold_is_named_exactly(threshold):
    for status in (Status.PROVEN_BELOW, Status.PROVEN_ABOVE):
        assert float(status.meaning(threshold).rpartition(" ")[2]) == threshold


def test_what_the_command_shows_contains_the_interval(monkeypatch, tmp_path, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    state = Progress(1 / 3, np.nextafter(2 / 3, 0), 7, 1.0)
    with certify._progress_line(lambda: False) as progress:
        assert progress(state)
    low, high = numbers(re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", terminal.getvalue()))
    assert low <= Fraction(state.lower) <= Fraction(state.upper) <= high

    meshes = prepare_mesh(shapes.sphere(1)), prepare_mesh(shapes.sphere(2))
    certificate = certify_hausdorff(*meshes, tolerance=1e-3)
    titles = []
    monkeypatch.setattr("matplotlib.figure.Figure.suptitle", lambda self, text: titles.append(text))
    certify_picture.draw(tmp_path / "a.png", *meshes, certificate, ("a", "b"))
    certify._print(certificate, False, None)
    for text in (*titles, capsys.readouterr().out):
        low, high = numbers(text)
        assert low <= Fraction(certificate.lower) <= Fraction(certificate.upper) <= high
