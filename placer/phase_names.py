"""The names of the phases of a wrapped step, as its attribute `phase` gives them."""

from __future__ import annotations

STARTING = "starting"
CAPTURING = "capturing"
STARTING_DEVICES = "starting devices"
PROFILING = "profiling"
PLANNING = "planning"
BUILDING = "building"
JUDGING_SPLITS = "judging splits"
MEASURING_SINGLES = "measuring single devices"
SEARCHING = "searching"
SETTLING = "settling"
LOOKING_AGAIN = "looking again"
STEADY = "steady"
LEFT_ALONE = "left alone"
