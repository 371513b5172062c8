"""Sparse tensors: features at the active sites of a voxel grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..device import is_cupy_array
from ..errors import InputError
from .geometry import ConvGeometry, Triple, triple
from .rulebook import Rulebook, dispatch_rulebook
from .sites import check_grid, check_sites
from .voxel_grid import VoxelGrid


class SparseTensor:
    """Features at active sites; the volume itself is never stored.

    Attributes:
        features: (N, C) float32 or float16.
        indices: (N, 4) int32 distinct active sites (batch, z, y, x), same array library as ``features``.
        spatial_shape: (D, H, W).
        batch_size: number of samples.
        scale, shift: site ``o`` of this tensor is centred on the input voxel ``scale * o + shift`` (z, y, x) of the
            tensor that the network was given; 1 and 0 for that tensor itself.
        voxel_grid: the grid that tensor's voxels belong to, or ``None`` when it was not made by ``voxelize``.
        rulebooks: rulebooks by ``indice_key``, shared by all tensors derived from one another.
        grid: optional look-up array handed to ``build_rulebook``.
        stats: counts and notes of whoever made the tensor (see ``voxelize``).
    """

    def __init__(
        self,
        features: Any,
        indices: Any,
        spatial_shape: Sequence[int],
        batch_size: int = 1,
        *,
        grid: Any = None,
        voxel_grid: VoxelGrid | None = None,
        stats: dict[str, Any] | None = None,
        check: bool = True,
    ) -> None:
        """Check and hold the arrays (no copy).

        ``check=False`` is for sites that this package made: nothing is looked at, so a device is not waited for.

        Raises:
            InputError: shapes, types or array libraries do not fit, or a site lies outside the shape.
        """
        shape = triple(spatial_shape, "spatial_shape", minimum=1)
        if check:
            check_sites(indices, shape, batch_size)
            check_features(features, indices)
            if grid is not None:
                check_grid(grid, shape, batch_size)
        self.features = features
        self.indices = indices
        self.spatial_shape: Triple = shape
        self.batch_size = batch_size
        self.scale: Triple = (1, 1, 1)
        self.shift: tuple[float, float, float] = (0.0, 0.0, 0.0)
        self.rulebooks: dict[str, Rulebook] = {}
        self.grid = grid
        self.voxel_grid = voxel_grid
        self.stats: dict[str, Any] = {} if stats is None else stats

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return (
            f"SparseTensor({len(self)} sites x {self.features.shape[1]} {self.features.dtype}, "
            f"shape {self.spatial_shape}, batch {self.batch_size})"
        )

    def replace_features(self, features: Any) -> SparseTensor:
        """The same sites (and rulebooks) with other features (N, C).

        Raises:
            InputError: ``features`` are not floating-point, or not one row a site.
        """
        check_features(features, self.indices)
        return self.derived(features, self.indices, self.spatial_shape, self.scale, self.shift)

    def convolved(self, features: Any, rulebook: Rulebook) -> SparseTensor:
        """The tensor that a convolution with ``rulebook`` makes of this one; ``features`` (N_out, C) are its result."""
        scale, shift = compose_lattice(self.scale, self.shift, rulebook.geometry)
        return self.derived(features, rulebook.out_indices, rulebook.out_spatial_shape, scale, shift)

    def restored(self, features: Any, rulebook: Rulebook) -> SparseTensor:
        """The tensor with ``features`` over the sites that ``rulebook`` read, when this one is over those it wrote."""
        geometry = rulebook.geometry
        _, step = compose_lattice((1, 1, 1), (0.0, 0.0, 0.0), geometry)
        scale = [a // s for a, s in zip(self.scale, geometry.stride, strict=True)]
        shift = [b - a * c for b, a, c in zip(self.shift, scale, step, strict=True)]
        return self.derived(
            features,
            rulebook.in_indices,
            rulebook.in_spatial_shape,
            (scale[0], scale[1], scale[2]),
            (shift[0], shift[1], shift[2]),
        )

    def derived(
        self,
        features: Any,
        indices: Any,
        shape: Triple,
        scale: Triple,
        shift: tuple[float, float, float],
    ) -> SparseTensor:
        """A tensor with the same rulebooks, batch and grid over sites that a rulebook made, which nobody checks again.

        Args:
            features, indices: (N, C) and (N, 4), as this tensor's own.
            shape: its spatial shape.
            scale, shift: where its sites lie in the network's input, as this tensor's own.
        """
        made = SparseTensor(
            features,
            indices,
            shape,
            self.batch_size,
            grid=self.grid,
            voxel_grid=self.voxel_grid,
            stats=self.stats,
            check=False,
        )
        made.scale, made.shift, made.rulebooks = scale, shift, self.rulebooks
        return made

    def rulebook(self, geometry: ConvGeometry, indice_key: str | None) -> Rulebook:
        """The rulebook for ``geometry`` over these sites: built once for an ``indice_key``, then reused.

        Raises:
            InputError: the key already names a rulebook of another geometry or of other sites.
        """
        known = self.rulebooks.get(indice_key) if indice_key is not None else None
        if known is None:
            built = dispatch_rulebook(self.indices, self.spatial_shape, self.batch_size, geometry, self.grid)
            if indice_key is not None:
                self.rulebooks[indice_key] = built
            return built
        if known.geometry != geometry:
            raise InputError(f"indice_key {indice_key!r} already belongs to {known.geometry}, not to {geometry}")
        if known.in_indices is not self.indices:
            raise InputError(f"indice_key {indice_key!r} already belongs to other active sites; use another key")
        return known


def compose_lattice(
    scale: Triple, shift: tuple[float, float, float], geometry: ConvGeometry
) -> tuple[Triple, tuple[float, float, float]]:
    """``scale`` and ``shift`` after a convolution: a site is centred where its receptive field is."""
    if geometry.subm:
        return scale, shift
    centre = [
        d * (k - 1) / 2 - p for k, p, d in zip(geometry.kernel_size, geometry.padding, geometry.dilation, strict=True)
    ]
    scales = [a * s for a, s in zip(scale, geometry.stride, strict=True)]
    shifts = [b + a * c for a, b, c in zip(scale, shift, centre, strict=True)]
    return (scales[0], scales[1], scales[2]), (shifts[0], shifts[1], shifts[2])


def check_features(features: Any, indices: Any) -> None:
    """Raise ``InputError`` unless ``features`` is a float (N, C) array that goes with ``indices``."""
    if getattr(features, "ndim", 0) != 2 or str(getattr(features, "dtype", "")) not in ("float32", "float16"):
        found = f"{getattr(features, 'dtype', type(features).__name__)} of shape {getattr(features, 'shape', '?')}"
        raise InputError(f"features must be a float32 or float16 array of shape (N, C), not {found}")
    if len(features) != len(indices):
        raise InputError(f"features have {len(features)} rows and indices {len(indices)}; they must agree")
    if is_cupy_array(features) != is_cupy_array(indices):
        raise InputError("features and indices must come from the same array library (both NumPy or both CuPy)")
