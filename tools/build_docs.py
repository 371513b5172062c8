#!/usr/bin/env python3
"""Write the API reference to build/docs from the docstrings of what each package exports.

python tools/build_docs.py [FOLDER]
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from pdoc import pdoc, render

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("sampling", "sparse", "hausdorff", "clouds", "device")
MODULES = ("pipeline", "frame_features", "errors")


def main() -> None:
    """Fail on what pdoc only warns of, as an annotation that it cannot read."""
    warnings.simplefilter("error", UserWarning)
    warnings.filterwarnings("ignore", "(?s).*'array.array' is not subscriptable")  # it is from Python 3.12 on
    folder = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build" / "docs"
    render.configure(docformat="google", show_source=False)
    names = (f"radius_fps_ros.{name}" for name in (*PACKAGES, *MODULES))
    # The packages say in __all__ what is public; their modules are not to be imported from.
    pdoc(*names, rf"!radius_fps_ros\.({'|'.join(PACKAGES)})\..+", output_directory=folder)
    print(f"written to {folder / 'index.html'}")


if __name__ == "__main__":
    main()
