"""Files that appear complete or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give the path of a new file beside ``path``, with its suffix, which replaces it when the body ends well.

    When the body fails, a file that stood at ``path`` is still there as it was. A link is followed; what is no plain
    file (a pipe, a device) is written itself.

    Raises:
        OSError: the folder or the file may not be written, or ``path`` is a folder.
    """
    target = Path(os.path.realpath(path))
    if target.exists():
        if not target.is_file():
            yield target
            return
        with target.open("ab"):
            pass  # refused here as writing it would be: renaming asks for no permission of the file
    beside = target.with_name(f".{secrets.token_hex(4)}{target.suffix}")
    try:
        yield beside
        if target.exists():
            shutil.copymode(target, beside)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
