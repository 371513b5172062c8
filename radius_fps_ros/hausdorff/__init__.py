"""Certified Hausdorff distance between triangle meshes: an interval that contains it, as a proof."""

from .certificate import Certificate, certify_hausdorff, warm_up
from .goal import Progress, Status
from .mesh import PreparedMesh, load_mesh, prepare_mesh

__all__ = [
    "Certificate",
    "PreparedMesh",
    "Progress",
    "Status",
    "certify_hausdorff",
    "load_mesh",
    "prepare_mesh",
    "warm_up",
]
