"""The guard notices another object at any of its places, whatever that object claims to be equal to."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest

from placer.trace.python.guard import Guard, _addresses, _finds_addresses, _ids


class Alike:
    """Is equal to everything."""

    __hash__ = None

    def __eq__(self, other):
        return True


class Slotted:
    __slots__ = ("one", "two")

    def __init__(self):
        self.one, self.two = object(), object()


class Alone:
    pass


class Other:
    pass


class Places:
    """One of each kind, and a guard of them all."""

    def __init__(self):
        self.thing = SimpleNamespace(a=object(), b=(1,), c=None)
        self.twin = SimpleNamespace(a=object(), b=object(), c=object(), d=object())
        self.alone = SimpleNamespace(a=object())
        self.slotted = Slotted()
        self.items, self.line, self.none = [object(), object()], deque([object()]), []
        self.held = {"x": object(), "y": object()}
        self.number = 1

        def reads():
            return self_held

        self_held = object()
        self.cell = reads.__closure__[0]
        self.guard = Guard(lambda a, b: type(a) is type(b) is int and a == b)
        for thing in (self.thing, self.twin):
            self.guard.named(vars(thing), ["a", "b", "c"])
        self.guard.named(vars(self.alone), ["a"])
        self.guard.named(vars(self), ["number"])
        self.guard.named(vars(self), [])
        self.guard.attributes(self.slotted, ["one", "two"])
        for whole in (self.items, self.line, self.none, self.held.keys(), self.held.values()):
            self.guard.whole(whole)
        self.guard.cell(self.cell)
        self.guard.size(vars(self.thing))
        self.guard.check(lambda: "z" not in self.held)
        self.known = SimpleNamespace(a=1, b=2)
        self.guard.names(vars(self.known))
        self.slotless = Alone()
        self.guard.class_of(self.slotless)
        self.guard.dict_of(self.slotless, vars(self.slotless))


CHANGES = {
    "an attribute": lambda p: setattr(p.thing, "b", Alike()),
    "an attribute of the second holder": lambda p: setattr(p.twin, "c", object()),
    "an attribute that is None": lambda p: setattr(p.thing, "c", Alike()),
    "two attributes that change places": lambda p: vars(p.twin).update(a=p.twin.b, b=p.twin.a),
    "a single attribute": lambda p: setattr(p.alone, "a", Alike()),
    "a slot": lambda p: setattr(p.slotted, "two", p.slotted.one),
    "a slot that is gone": lambda p: delattr(p.slotted, "two"),
    "an attribute that is gone": lambda p: delattr(p.twin, "b"),
    "an attribute more": lambda p: setattr(p.thing, "e", None),
    "an item": lambda p: p.items.reverse(),
    "an item more": lambda p: p.items.append(p.items[0]),
    "an item that moves on": lambda p: p.line.append(p.items.pop()),
    "an item where none was": lambda p: p.none.append(None),
    "a value": lambda p: p.held.update(x=Alike()),
    "a key": lambda p: p.held.update(z=p.held.pop("x")),
    "a cell": lambda p: setattr(p.cell, "cell_contents", Alike()),
    "one name for another": lambda p: vars(p.known).update(c=p.known.__dict__.pop("a")),
    "another class": lambda p: setattr(p.slotless, "__class__", Other),
    "another dict": lambda p: setattr(p.slotless, "__dict__", {}),
    "a number of another type": lambda p: setattr(p, "number", True),
    "another number": lambda p: setattr(p, "number", 2),
}


@pytest.fixture(params=[_addresses, _ids], ids=["addresses", "ids"])
def identities(request, monkeypatch):
    """Both ways to compare objects; the slow one is for a Python whose tuples look otherwise."""
    monkeypatch.setattr("placer.trace.python.guard._identities", request.param)


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
@pytest.mark.parametrize("before", [True, False], ids=["checked before", "never checked"])
def test_a_change_is_noticed(identities, change, before):
    places = Places()
    assert not before or places.guard.holds()
    change(places)
    assert not places.guard.holds()
    assert not places.guard.holds()


def test_all_holds_while_nothing_changes(identities):
    places = Places()
    places.twin.d = object()  # a place that is not watched
    assert places.guard.holds() and places.guard.holds()
    assert len(places.guard) == 2 * 3 + 1 + 1 + 2 + (2 + 1 + 2 + 2) + 1


def test_an_equal_number_is_as_good_and_is_known_from_then_on(identities):
    asked = []
    numbers = SimpleNamespace(a=10**20, b=object())
    guard = Guard(lambda a, b: asked.append(a) or a == b)
    guard.named(vars(numbers), ["a", "b"])
    assert guard.holds() and not asked
    numbers.a = int("1" + "0" * 20)
    assert guard.holds() and len(asked) == 1
    assert guard.holds() and len(asked) == 1


def test_an_equal_number_beside_a_change_is_not_taken_for_the_one_before(identities):
    """What a check that fails has seen may be gone by the next one, and something else at its address."""
    numbers = SimpleNamespace(a=10**20, b=object())
    guard, b = Guard(lambda x, y: type(x) is type(y) is int and x == y), numbers.b
    guard.named(vars(numbers), ["a", "b"])
    assert guard.holds()
    for last in ("0", "1"):
        numbers.a, numbers.b = int("1" + "0" * 19 + last), object()
        assert not guard.holds()
        numbers.b = b
        assert guard.holds() == (last == "0")


def test_nothing_else_takes_the_address_of_what_was_seen(identities):
    thing = SimpleNamespace(a=object(), b=None)
    guard = Guard(lambda a, b: False)
    guard.named(vars(thing), ["a", "b"])
    for _ in range(50):
        del thing.a
        thing.a = object()
        assert not guard.holds()


def test_addresses_are_found_here():
    assert _finds_addresses()
