"""Plans of splits in mapping files: the fields `splits` and `in_flight`, which may be edited by hand."""

from __future__ import annotations

from pathlib import Path

from msgspec import UNSET

from placer.errors import BadInputError, short
from placer.graph.mapping_files import MappingFile, SplitRegion, read_mapping_file
from placer.splits.plan import LOCAL, Division, SplitPlan

BATCH_NORM = ("exact", LOCAL)  # whether batch normalisation takes the whole batch's statistics, or each part its own
SPLIT_OFF, SPLIT_AUTO = "off", "auto"  # instead of a file with splits: divide nothing; choose a plan


def check_split(split: str, batchnorm: str, *, as_options: bool) -> None:
    """Raise BadInputError for unknown statistics, and for local statistics if nothing is divided.

    as_options: whether `split` and `batchnorm` were given to a command; else to a function.
    """
    name = "--split-batchnorm" if as_options else "split_batchnorm"
    if batchnorm not in BATCH_NORM:
        given = short(batchnorm) if as_options else repr(batchnorm)
        choices = [choice if as_options else repr(choice) for choice in BATCH_NORM]
        raise BadInputError(f"{name} is {given}; give {' or '.join(choices)}.")
    if batchnorm == LOCAL and split == SPLIT_OFF:
        local, auto = (f"{name} local", "--split auto") if as_options else (f"{name}='local'", "split='auto'")
        raise BadInputError(f"{local} divides nothing by itself; give {auto}, too, or a file.")


def regions_of(plan: SplitPlan) -> list[SplitRegion]:
    """Return a plan in the form of mapping files."""
    return [SplitRegion(division.way, division.parts, names) for division, names in plan.regions()]


def plan_of(file: MappingFile) -> SplitPlan:
    """Return the plan of a mapping file, empty without splits. Raises PlanError if an op is divided in two ways."""
    regions = ((Division(region.way, region.parts), region.ops) for region in file.splits or [])
    return SplitPlan.of_regions(regions, None if file.in_flight is UNSET else file.in_flight)


def plans_in(mapping: object) -> list[SplitPlan]:
    """Return the plan of `mapping` if it is the path of a file with splits; else nothing. Raises BadInputError."""
    plan = plan_of(read_mapping_file(mapping)) if isinstance(mapping, str | Path) else SplitPlan()
    return [plan] if len(plan) else []


def read_plan(path: str | Path) -> SplitPlan:
    """Read the plan in a mapping file. Raises BadInputError if the file has no plan."""
    plan = plan_of(read_mapping_file(path))
    if not len(plan):
        raise BadInputError(f"{path}: $.splits is missing; give a mapping of a search that divided ops.")
    return plan
