"""Names of functions and attributes by which code reads more of an object than it names."""

from __future__ import annotations

import re

REFLECTION = frozenset({"vars", "dir", "__dict__", "asdict", "astuple", "copy", "deepcopy", "replace", "dumps"})
REFLECTION |= {"__getstate__", "__slots__", "getmembers", "fields", "__getattribute__"}
NAMING = {"getattr": 1, "hasattr": 1, "getattr_static": 1, "attrgetter": 0, "methodcaller": 0}  # the name's position
EQUATING = frozenset(  # functions and methods that compare their arguments, or look for them in a container
    {
        "index", "remove", "count", "sorted", "sort", "min", "max", "eq", "ne", "lt", "le", "gt", "ge", "contains",
        "countOf", "indexOf", "groupby", "nlargest", "nsmallest", "merge", "heapify", "heappush", "heappop", "unique",
        "heappushpop", "heapreplace", "bisect", "bisect_left", "bisect_right", "insort", "insort_left", "insort_right",
        "array_equal", "isin",
    }
)  # fmt: skip
MEMBERS = frozenset({"getmembers", "__getattribute__"})  # may return any attribute
TEXT_MAKERS = frozenset({"str", "repr", "ascii", "format", "format_map", "print"})
KINDS_ASKED = frozenset({"isinstance", "issubclass"})  # take `str` as a class, and do not call it
PASSING = frozenset(  # return what they are given, or what their object holds
    {"zip", "enumerate", "reversed", "list", "tuple", "iter", "next", "items", "values", "get", "pop", "flatten"}
)
FIELDS, ATTRIBUTES = re.compile(r"\{([^{}!:]*)"), re.compile(r"\.([^\W\d]\w*)")


def attributes_shown(text: str) -> frozenset[str]:
    """The attributes that a text for `str.format` names, such as "rate" in "{0.rate}"."""
    return frozenset(name for field in FIELDS.findall(text) for name in ATTRIBUTES.findall(field))
