"""Everything public has a docstring with its arguments and errors, and the reference is built of them.

An argument is documented when the docstring names it, or refers to the public object that documents it, as in
"see `farthest_point_sampling`"; the docstring of a class and of its ``__init__`` count as one. What takes a single
argument says in its own words what that is.
"""

import dataclasses
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "build_docs.py"
NAMES = ("sampling", "sparse", "hausdorff", "clouds", "device", "pipeline", "frame_features", "errors")


def public(module):
    """The objects by the names that a package exports, or that a module defines."""
    names = getattr(module, "__all__", None)
    if names is None:
        own = (name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__)
        names = [name for name in own if not name.startswith("_")]
    return {name: getattr(module, name) for name in names}


MODULES = [importlib.import_module(f"radius_fps_ros.{name}") for name in NAMES]
PUBLIC = {f"{module.__name__}.{name}": value for module in MODULES for name, value in public(module).items()}
WORDS = {name.rpartition(".")[2] for name in PUBLIC}


def callables():
    """(name, function, docstring) of every public function, constructor and method that this package defines."""
    for name, value in PUBLIC.items():
        value = inspect.unwrap(value)
        if inspect.isfunction(value):
            yield name, value, value.__doc__ or ""
        if not inspect.isclass(value):
            continue
        for member, found in vars(value).items():
            function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
            if not inspect.isfunction(function) or not function.__module__.startswith("radius_fps_ros"):
                continue
            text = function.__doc__ or ""
            if member == "__init__":
                yield f"{name}.{member}", function, f"{value.__doc__}\n{text}"
            elif not member.startswith("_") or member == "__call__":
                yield f"{name}.{member}", function, text


CALLABLES = {
    name: (function, text) for name, function, text in callables() if function.__code__.co_filename != "<string>"
}  # without what dataclasses generate


def arguments(function):
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def refers(text):
    """Whether ``text`` names a public object, whose docstring says more."""
    return any(re.search(rf"`(\w+\.)*{word}`", text) for word in WORDS)


def undocumented(names, text):
    """The names that ``text`` says nothing of; a path needs no words."""
    if refers(text):
        return []
    return [name for name in names if name != "path" and not re.search(rf"\b{name}\b", text)]


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_public_has_a_docstring(name):
    value = PUBLIC[name]
    assert not callable(value) or (inspect.getdoc(value) or "").strip()


@pytest.mark.parametrize("name", CALLABLES)
def test_arguments_and_errors_are_documented(name):
    function, text = CALLABLES[name]
    assert text.strip(), "no docstring"
    names = arguments(function)
    assert len(names) < 2 or undocumented(names, text) == []
    if re.search(r"^\s+raise (InputError|BackendError)\(", inspect.getsource(function), re.MULTILINE):
        assert "Raises:" in text or refers(text), "says not what it raises"


@pytest.mark.parametrize("name", [name for name, value in PUBLIC.items() if dataclasses.is_dataclass(value)])
def test_the_members_of_records_are_documented(name):
    members = [field.name for field in dataclasses.fields(PUBLIC[name]) if not field.name.startswith("_")]
    assert [member for member in members if not re.search(rf"\b{member}\b", PUBLIC[name].__doc__)] == []


def test_the_check_finds_what_is_missing():
    def bad(first, second): ...

    assert undocumented(arguments(bad), "Only the first is named.") == ["second"]
    assert undocumented(arguments(bad), "See `farthest_point_sampling`.") == []
    assert undocumented(arguments(bad), "See `no_such_function`.") == ["first", "second"]


def test_the_reference_is_built_without_a_warning(tmp_path):
    pytest.importorskip("pdoc", reason="pdoc is not installed")
    done = subprocess.run([sys.executable, TOOL, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    spec = importlib.util.spec_from_file_location("build_docs", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert {*tool.PACKAGES, *tool.MODULES} == set(NAMES)
    pages = {name: (tmp_path / "radius_fps_ros" / f"{name}.html").read_text() for name in NAMES}
    assert [full for full in PUBLIC if f'id="{full.split(".")[2]}"' not in pages[full.split(".")[1]]] == []
