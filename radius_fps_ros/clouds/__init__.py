"""Point clouds as records: PointCloud2 messages in and out, files, bags and synthetic scenes; no ROS needed."""

from .decode import Cloud, decode_cloud
from .encode import CloudData, encode_cloud, encode_subset
from .files import read_cloud, write_cloud
from .layout import Field, PointLayout

__all__ = [
    "Cloud",
    "CloudData",
    "Field",
    "PointLayout",
    "decode_cloud",
    "encode_cloud",
    "encode_subset",
    "read_cloud",
    "write_cloud",
]
