"""Parts of error messages: short and on one line, however broken the input is."""

from __future__ import annotations

from collections.abc import Iterable


def describe_names(names: Iterable[str]) -> str:
    """Return names as a list, cut short where a broken header holds very many or very long ones."""
    text = ", ".join(repr(name[:100]) for name in names) or "none"
    return text if len(text) <= 200 else text[:200] + "..."


def describe_error(error: Exception) -> str:
    """Return a library's reason as one clause, without its advice to programmers."""
    text = str(error).split("\n")[0].split("; use `usecols`")[0]
    return text[:200] or type(error).__name__
