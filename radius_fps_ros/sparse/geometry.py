"""The shape of one convolution: kernel, stride, padding, dilation, submanifold or not."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ..errors import InputError

Triple = tuple[int, int, int]


def triple(value: int | Sequence[int], name: str, *, minimum: int) -> Triple:
    """``value`` as three integers in (z, y, x) order; one integer stands for all three axes."""
    values = (value,) * 3 if isinstance(value, int) else tuple(value)
    if len(values) != 3 or any(int(v) != v or v < minimum for v in values):
        raise InputError(f"{name} must be one integer or three (z, y, x), each at least {minimum}, not {value!r}")
    return (int(values[0]), int(values[1]), int(values[2]))


@dataclass(frozen=True)
class ConvGeometry:
    """The shape of one convolution.

    Attributes:
        kernel_size, stride, padding, dilation: in (z, y, x) order.
        subm: submanifold: the output sites are the input sites.

    Kernel offset ``k`` runs row-major over (kz, ky, kx); it joins output site ``o`` with the input site
    ``o * stride - padding + k * dilation`` (cross-correlation, as dense convolution does).
    """

    kernel_size: Triple
    stride: Triple
    padding: Triple
    dilation: Triple
    subm: bool

    @classmethod
    def make(
        cls,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | None = None,
        dilation: int | Sequence[int] = 1,
        *,
        subm: bool = False,
    ) -> ConvGeometry:
        """Check and complete the parameters.

        Args:
            kernel_size, stride, padding, dilation: one integer, or three in (z, y, x) order; without padding it is 0.
            subm: a submanifold convolution. It centres its kernel: its padding is ``kernel_size // 2 * dilation``,
                whatever is given, as in spconv.

        Raises:
            InputError: a value is not one or three integers in range, or a submanifold convolution is given a stride
                other than 1.
        """
        kernel = triple(kernel_size, "kernel_size", minimum=1)
        strides = triple(stride, "stride", minimum=1)
        dilations = triple(dilation, "dilation", minimum=1)
        paddings = triple(0 if padding is None else padding, "padding", minimum=0)
        centred = (kernel[0] // 2 * dilations[0], kernel[1] // 2 * dilations[1], kernel[2] // 2 * dilations[2])
        if not subm:
            return cls(kernel, strides, paddings, dilations, False)
        if strides != (1, 1, 1):
            raise InputError(f"a submanifold convolution keeps its sites, so stride must be 1, not {stride!r}")
        return cls(kernel, strides, centred, dilations, True)

    @property
    def volume(self) -> int:
        """Number K of kernel offsets."""
        return prod(self.kernel_size)

    def offsets(self) -> list[Triple]:
        """All kernel offsets (kz, ky, kx), row-major."""
        kz, ky, kx = self.kernel_size
        return list(itertools.product(range(kz), range(ky), range(kx)))

    def output_shape(self, spatial_shape: Triple) -> Triple:
        """Spatial shape of the output: ``floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1``.

        Raises:
            InputError: the kernel does not fit, so there would be no output.
        """
        if self.subm:
            return spatial_shape
        axes = zip(spatial_shape, self.kernel_size, self.stride, self.padding, self.dilation, strict=True)
        shape = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes)
        if min(shape) < 1:
            raise InputError(
                f"kernel_size {self.kernel_size} with dilation {self.dilation} and padding {self.padding} "
                f"does not fit in spatial_shape {spatial_shape}"
            )
        return (shape[0], shape[1], shape[2])
