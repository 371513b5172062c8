"""Voxels, rulebooks, sparse convolution and the VoxelResBackBone8x network, on the CPU and on CUDA."""

from .backbone import VoxelResBackBone8x
from .check import check_rulebook
from .checkpoints import load_weights
from .config import BackboneConfig, load_config
from .geometry import ConvGeometry
from .layers import SparseBasicBlock, SparseConv3d, SparseInverseConv3d, SubMConv3d
from .network import FeatureMaps
from .picture import draw_sites
from .point_features import input_features
from .rulebook import Rulebook, build_rulebook
from .sample_features import gather_features, site_centres
from .summary import summary
from .tensor import SparseTensor
from .voxel_grid import VoxelGrid
from .voxelize import voxelize, voxelize_for
from .weights import fold_batch_norm

__all__ = [
    "BackboneConfig",
    "ConvGeometry",
    "FeatureMaps",
    "Rulebook",
    "SparseBasicBlock",
    "SparseConv3d",
    "SparseInverseConv3d",
    "SparseTensor",
    "SubMConv3d",
    "VoxelGrid",
    "VoxelResBackBone8x",
    "build_rulebook",
    "check_rulebook",
    "draw_sites",
    "fold_batch_norm",
    "gather_features",
    "input_features",
    "load_config",
    "load_weights",
    "site_centres",
    "summary",
    "voxelize",
    "voxelize_for",
]
