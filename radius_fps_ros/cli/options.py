"""What options of several commands have in common."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import click
from click.types import FloatParamType

from ..errors import InputError


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


def check_place(path: Path | None) -> None:
    """Refuse a file that could not be written, before the work that it would hold is done.

    Raises:
        InputError: its folder does not exist or may not be written, or it is a folder itself.
    """
    if path is None:
        return
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {folder}")
    if path.is_dir():
        raise InputError(f"{path} cannot be written: it is a folder")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError(f"{path} cannot be written: permission denied")
