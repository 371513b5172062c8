"""The pipeline over a whole bag, without a ROS graph; no ROS needed."""

from .run import Observer, Outcome, process_bag
from .settings import FeatureSettings, Job

__all__ = ["FeatureSettings", "Job", "Observer", "Outcome", "process_bag"]
