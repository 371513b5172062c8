"""Parameter specifications: what they take, what they refuse, and in which words."""

import math

import pytest
from rclpy.parameter import Parameter

from radius_fps_ros.errors import InputError
from radius_fps_ros.nodes import hausdorff_parameters
from radius_fps_ros.nodes.parameters import ParameterSet, ParameterSpec
from radius_fps_ros.nodes.perception_parameters import SPECS, check_together, pipeline_settings

COUNT = ParameterSpec("count", 5, "A count.", low=1, high=10)
LENGTH = ParameterSpec("length", 1.0, "A length.", low=0.0, high=2.0)
NAME = ParameterSpec("name", "a", "A name.", choices=("a", "b"))
FLAG = ParameterSpec("flag", False, "A flag.")
CORNER = ParameterSpec("corner", [], "A corner.", length=3)


@pytest.mark.parametrize(
    ("spec", "value", "expected"),
    [
        (COUNT, 10, 10),
        (LENGTH, 2, 2.0),
        (NAME, "b", "b"),
        (FLAG, True, True),
        (CORNER, [1, 2.5, 3], [1.0, 2.5, 3.0]),
        (CORNER, [], []),
    ],
)
def test_values_that_fit(spec, value, expected):
    checked = spec.checked(value)
    assert checked == expected
    assert type(checked) is type(expected)


@pytest.mark.parametrize(
    ("spec", "value", "sentence"),
    [
        (COUNT, 11, "parameter count must be an integer from 1 to 10, not 11"),
        (COUNT, True, "parameter count must be an integer from 1 to 10, not True"),
        (COUNT, 2.0, "parameter count must be an integer from 1 to 10, not 2.0"),
        (COUNT, None, "parameter count must be an integer from 1 to 10, not None"),
        (LENGTH, math.nan, "parameter length must be a number from 0 to 2, not nan"),
        (LENGTH, "1", "parameter length must be a number from 0 to 2, not '1'"),
        (
            LENGTH,
            "1e-4",
            "parameter length must be a number from 0 to 2, not '1e-4', which is text in YAML: write 1.0e-4",
        ),
        (
            LENGTH,
            "1.5e0",
            "parameter length must be a number from 0 to 2, not '1.5e0', which is text in YAML: write 1.5e+0",
        ),
        (NAME, "c", "parameter name must be one of a, b, not 'c'"),
        (NAME, "1e4", "parameter name must be one of a, b, not '1e4'"),
        (NAME, 1, "parameter name must be one of a, b, not 1"),
        (FLAG, 1, "parameter flag must be true or false, not 1"),
        (CORNER, [1.0, 2.0], "parameter corner must be a list of 3 numbers, or empty, not [1.0, 2.0]"),
        (CORNER, "xyz", "parameter corner must be a list of 3 numbers, or empty, not 'xyz'"),
    ],
)
def test_values_that_do_not_fit(spec, value, sentence):
    with pytest.raises(InputError) as error:
        spec.checked(value)
    assert str(error.value) == sentence


@pytest.mark.parametrize(("file", "specs"), [("perception", SPECS), ("hausdorff", hausdorff_parameters.SPECS)])
def test_every_parameter_is_explained_in_the_configuration_file(pytestconfig, file, specs):
    text = (pytestconfig.rootpath / "config" / f"{file}.yaml").read_text()
    for spec in specs:
        assert f"{spec.name}: " in text
    assert all(spec.description.endswith(".") for spec in specs)


def test_no_limit_means_infinity():
    defaults = {spec.name: spec.default for spec in SPECS}
    check_together(defaults)
    settings = pipeline_settings(defaults)
    assert settings.range_max == math.inf
    assert settings.roi_min is None


def test_a_set_is_changed_as_a_whole(ros_node):
    parameters = ParameterSet(ros_node, (COUNT, LENGTH))
    before = parameters.values
    refused = ros_node.set_parameters_atomically([Parameter("count", value=7), Parameter("length", value=9.0)])
    assert not refused.successful
    assert parameters.values is before
    assert ros_node.set_parameters_atomically([Parameter("count", value=7), Parameter("length", value=2)]).successful
    assert parameters.values == {"count": 7, "length": 2.0}
    assert before == {"count": 5, "length": 1.0}


@pytest.mark.parametrize(
    ("specs", "heading"),
    [(SPECS, "### Parameters"), (hausdorff_parameters.SPECS, "## Certified Hausdorff distances")],
)
def test_the_readme_lists_every_parameter_and_whether_it_may_change(pytestconfig, specs, heading):
    text = (pytestconfig.rootpath / "README.md").read_text().split(heading)[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| `")]
    listed = {name: row for row in rows if len(row) == 4 for name in row[0].replace("`", "").split(", ")}
    assert set(listed) == {spec.name for spec in specs}
    assert {name: row[2] for name, row in listed.items()} == {s.name: "no" if s.read_only else "yes" for s in specs}
