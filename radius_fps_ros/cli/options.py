"""What options of several commands have in common."""

from __future__ import annotations

import math
from typing import Any

import click
from click.types import FloatParamType


class FiniteFloat(FloatParamType):
    """A float that is neither infinite nor NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or fail with the option's name."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class FiniteRange(click.FloatRange, FiniteFloat):
    """A float inside a range; click's own takes NaN into every range."""


FINITE = FiniteFloat()
