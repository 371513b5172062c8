"""ROS parameters from one table: declared with descriptors, checked together, refused with a sentence."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter

from ..errors import InputError

Values = Mapping[str, Any]


@dataclass(frozen=True)
class ParameterSpec:
    """One parameter; its type is the type of ``default``, and an integer serves where a float is expected.

    Attributes:
        low, high: the closed range of a number, or of each number of a list.
        choices: the allowed strings.
        item: the type of a list's entries, float or str.
        length: the number of entries a list must have, or be empty; ``None`` for any number.
        read_only: fixed when the node starts.
    """

    name: str
    default: Any
    description: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    item: type = float
    length: int | None = None
    read_only: bool = False

    def descriptor(self) -> ParameterDescriptor:
        """The ROS descriptor. Typing stays dynamic: rclpy's own refusal of ``50`` for a float names no parameter."""
        descriptor = ParameterDescriptor(
            name=self.name, description=self.description, read_only=self.read_only, dynamic_typing=True
        )
        descriptor.additional_constraints = self.allowed()
        if self.low is not None and self.high is not None:
            if isinstance(self.default, float):
                limits = FloatingPointRange(from_value=float(self.low), to_value=float(self.high))
                descriptor.floating_point_range = [limits]
            elif isinstance(self.default, int):
                descriptor.integer_range = [IntegerRange(from_value=int(self.low), to_value=int(self.high))]
        return descriptor

    def allowed(self) -> str:
        """What values are allowed, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if isinstance(self.default, list):
            entries = "strings" if self.item is str else "numbers"
            return f"a list of {entries}" if self.length is None else f"a list of {self.length} {entries}, or empty"
        noun = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}[type(self.default)]
        if self.low is not None and self.high is not None:
            return f"{noun} from {_plain(self.low)} to {_plain(self.high)}"
        return noun

    def checked(self, value: Any) -> Any:
        """``value`` in the parameter's type.

        Raises:
            InputError: it is of another type or out of range; the sentence says what is allowed.
        """
        shown = value.tolist() if isinstance(value, array) else value
        refusal = InputError(f"parameter {self.name} must be {self.allowed()}, not {shown!r}{self._yaml_hint(value)}")
        if isinstance(self.default, list):
            if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
                raise refusal
            entries = list(value)
            fits = (lambda entry: isinstance(entry, str)) if self.item is str else self._number_fits
            if (self.length is not None and len(entries) not in (0, self.length)) or not all(map(fits, entries)):
                raise refusal
            return [self.item(entry) for entry in entries]
        if isinstance(self.default, (bool, str)):
            if type(value) is not type(self.default) or (self.choices and value not in self.choices):
                raise refusal
            return value
        if not self._number_fits(value) or (isinstance(self.default, int) and not isinstance(value, int)):
            raise refusal
        return type(self.default)(value)

    def _yaml_hint(self, value: Any) -> str:
        """``ros2 param set`` follows YAML 1.1, where 1e-4 is text: a point and a signed exponent make it a number."""
        number = re.fullmatch(r"([+-]?\d+)(\.\d+)?e([+-]?\d+)", value, re.ASCII) if isinstance(value, str) else None
        if number is None or not isinstance(self.default, float):
            return ""
        return f", which is text in YAML: write {number[1]}{number[2] or '.0'}e{int(number[3]):+d}"

    def _number_fits(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


def _plain(number: float) -> str:
    return f"{number:.0f}" if float(number).is_integer() and abs(number) < 1e10 else f"{number:g}"


class ParameterSet:
    """The declared parameters of a node and their current values.

    ``values`` is replaced as a whole when parameters change: a reader in another thread sees one consistent state.
    ``refused`` holds a sentence for each override that could not be used at the start; it keeps its default until it is
    set right.
    """

    def __init__(
        self, node: Node, specs: Sequence[ParameterSpec], check_together: Callable[[Values], None] | None = None
    ) -> None:
        """Declare ``specs`` on ``node``; ``check_together`` raises InputError for values that do not fit each other."""
        self._specs = {spec.name: spec for spec in specs}
        self._check_together = check_together or (lambda values: None)
        self.refused: dict[str, str] = {}
        values: dict[str, Any] = {}
        for spec in specs:
            values[spec.name] = self._start_value(node, spec)
            node.declare_parameter(spec.name, values[spec.name], spec.descriptor(), ignore_override=True)
        try:
            self._check_together(values)
        except InputError as error:
            self.refused["*"] = str(error)
        self.values: Values = values
        node.add_on_set_parameters_callback(self._on_set)
        node.add_post_set_parameters_callback(self._after_set)

    def _start_value(self, node: Node, spec: ParameterSpec) -> Any:
        # rclpy answers an override it refuses with an exception that ends the node, so the override is looked at first,
        # under a passing declaration that accepts anything.
        anything = ParameterDescriptor(dynamic_typing=True)
        value = node.declare_parameter(spec.name, spec.default, anything).value
        node.undeclare_parameter(spec.name)
        try:
            return spec.checked(value)
        except InputError as error:
            self.refused[spec.name] = str(error)
            return spec.default

    def _candidate(self, parameters: Sequence[Parameter[Any]]) -> Values:
        changed = {p.name: self._specs[p.name].checked(p.value) for p in parameters if p.name in self._specs}
        candidate = dict(self.values) | changed
        self._check_together(candidate)
        return candidate

    def _on_set(self, parameters: Sequence[Parameter[Any]]) -> SetParametersResult:
        try:
            self._candidate(parameters)
        except InputError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _after_set(self, parameters: Sequence[Parameter[Any]]) -> None:
        self.values = self._candidate(parameters)
        for parameter in parameters:
            if parameter.name in self._specs:
                self.refused.pop(parameter.name, None)
                self.refused.pop("*", None)
