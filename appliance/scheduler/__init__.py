"""Several questions at once: see `base` for how."""

from appliance.scheduler.base import SchedulerSettings
from appliance.scheduler.scheduler import Scheduler

__all__ = ["Scheduler", "SchedulerSettings"]
