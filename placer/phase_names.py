"""The phases of a wrapped step, in the words in which its `phase` says what is going on."""

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
