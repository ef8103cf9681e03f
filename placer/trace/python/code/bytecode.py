"""Finds what the code of a Python function reads and writes by name, in its bytecode and without running it."""

from __future__ import annotations

import dis
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import CodeType

from placer.trace.python.code.frame import Frame
from placer.trace.python.code.instructions import labels_of, stored_by
from placer.trace.python.code.names import (
    EQUATING,
    KINDS_ASKED,
    MEMBERS,
    NAMING,
    PASSING,
    REFLECTION,
    TEXT_MAKERS,
    attributes_shown,
)
from placer.trace.python.code.paths import (
    CONSTANT,
    FRESH,
    ITEM,
    TEXT_ROOTS,
    UNKNOWN,
    Path,
    Paths,
    beginning,
    held_by,
    is_constant,
    is_text,
    last_name,
    taken_from,
)
from placer.trace.python.code.reads import Asked, Call, Reads

HAS_SPEC = 0x04  # flag of FORMAT_VALUE


@lru_cache(maxsize=4096)
def reads_of(code: CodeType) -> Reads:
    """The reads and writes of a function's code, and of the functions defined in it."""
    found = Reads()
    _Reading(code, {}, found).run()
    return found


def is_for_super(code: CodeType) -> bool:
    """Whether a method uses its class only for `super()`: it does not read, call or pass on the class."""
    reads, own = reads_of(code), Path("free", "__class__")
    given = (path for call in reads.calls for paths in (call.callee, *call.arguments) for path in paths)
    return not any((path.root, path.name) == own[:2] and path.attributes for path in reads.paths) and own not in given


class _Reading(Frame):
    """A walk that notes what each instruction does with names."""

    def __init__(self, code: CodeType, outer: Mapping[str, Paths], found: Reads) -> None:
        super().__init__(code, outer, found)
        self.keywords: tuple[str, ...] = ()  # of the call that comes next
        self.taken: Paths = frozenset({FRESH})  # the result of the call that comes next
        self.namings = 0  # number of functions of NAMING that were loaded, and are not called yet
        self.once = {name for name, number in Counter(stored_by(code)).items() if number == 1}

    def run(self) -> None:
        """Fill `found`."""
        self.walk()
        if self.namings > 0:  # one is passed on
            self._ask(frozenset({UNKNOWN}))
        labels = labels_of(self.code)
        for constant in self.code.co_consts:
            if isinstance(constant, CodeType):
                _Reading(constant, self.local, self.found).run()
            if constant not in labels:
                self._constant(constant)

    def _constant(self, constant: object) -> None:
        parts: list[str] = []
        if isinstance(constant, str):
            parts += attributes_shown(constant)
        if isinstance(constant, str) and all(map(str.isidentifier, constant.split("."))):
            parts += constant.split(".")
        for part in parts:
            self.found.add_name(part)
        if isinstance(constant, tuple):
            for part in constant:
                self._constant(part)

    def _pop_top(self, instruction: dis.Instruction) -> None:
        if self.before == "PUSH_EXC_INFO":  # `except:`, which asks for no class
            self.found.catches.append(frozenset({UNKNOWN}))
        self._taken()

    def _match_class(self, instruction: dis.Instruction) -> None:
        self.found.reflects = True
        self._other(instruction)

    def _pop_lasting(self) -> Paths:
        """Pop what is on top; return its paths without those to objects that the code made."""
        return frozenset(path for path in self._pop() if path.root not in ("fresh", *TEXT_ROOTS))

    # Calls, and names that are made at run time.

    def _load_const(self, instruction: dis.Instruction) -> None:
        text = instruction.argval
        self.stack.append(frozenset({Path("constant", text) if isinstance(text, str) else CONSTANT}))

    def _binary_op(self, instruction: dis.Instruction) -> None:
        right, left = self._pop(), self._pop()
        if instruction.argrepr in ("%", "%=") and self.before != "LOAD_CONST":  # else the remainder of a number
            kept = {Path("begins")} if any(path.root == "fresh" for path in left) and self.found.keeps_text else set()
            self.found.remainders.append((left | kept, right))
        ends = {"+": "", "%": "%"}.get(instruction.argrepr)
        self.stack.append(frozenset({FRESH}) if ends is None else beginning(left, ends))

    def _is_op(self, instruction: dis.Instruction) -> None:
        sides = self._top(1), self._top(2)
        if not any(all(map(is_constant, side)) for side in sides):
            self.found.identities.append(sides)
        self._other(instruction)

    def _compare_op(self, instruction: dis.Instruction) -> None:
        self.found.equates |= not any(all(map(is_constant, self._top(depth))) for depth in (1, 2))
        self._other(instruction)

    _contains_op = _compare_op

    def _build_string(self, instruction: dis.Instruction) -> None:
        parts = [self._pop() for _ in range(instruction.arg or 0)]
        self.stack.append(beginning(parts[-1]) if parts else frozenset({FRESH}))

    def _format_value(self, instruction: dis.Instruction) -> None:
        has_spec = (instruction.arg or 0) & HAS_SPEC
        self.found.texts.append(self._top(2 if has_spec else 1))
        self._other(instruction)

    def _convert_value(self, instruction: dis.Instruction) -> None:
        """Do nothing for `!r` and the like: the object itself is still what becomes text next."""

    def _format_simple(self, instruction: dis.Instruction) -> None:
        self.found.texts.append(self._top(1))
        self._other(instruction)

    def _format_with_spec(self, instruction: dis.Instruction) -> None:
        self.found.texts.append(self._top(2))
        self._other(instruction)

    def _call_function_ex(self, instruction: dis.Instruction) -> None:
        if any(last_name(path) in TEXT_MAKERS for depth in (2, 3, 4) for path in self._top(depth)):
            self.found.texts.append(frozenset({UNKNOWN}))
        self._other(instruction)

    def _kw_names(self, instruction: dis.Instruction) -> None:
        self.keywords = self.code.co_consts[instruction.arg or 0]

    def _call(self, instruction: dis.Instruction) -> None:
        if "PRECALL" not in dis.opmap:
            self._called(instruction.arg or 0)
        self._other(instruction)
        self.stack[-1], self.taken = self.taken, frozenset({FRESH})

    def _precall(self, instruction: dis.Instruction) -> None:
        self._called(instruction.arg or 0)
        self._other(instruction)

    def _call_kw(self, instruction: dis.Instruction) -> None:
        self.keywords = self.latest[1]
        names = self._pop()
        self._called(instruction.arg or 0)
        self.stack.append(names)
        self._other(instruction)
        self.stack[-1], self.taken = self.taken, frozenset({FRESH})

    def _called(self, count: int) -> None:
        """Note a call: the callee, with a null or a `self` beside it, is below its `count` arguments on the stack."""
        arguments = tuple(self._top(count - i) for i in range(count))
        callee = (self._top(count + 1) | self._top(count + 2)) - {FRESH, UNKNOWN}
        self.found.calls.append(Call(callee, arguments, self.keywords))
        self.keywords = ()
        called = {last_name(path) for path in callee}
        if called & PASSING:
            self.taken = taken_from(callee.union(*arguments)) | held_by(callee)
        if called & TEXT_MAKERS:
            self.found.texts += arguments
        elif not called & KINDS_ASKED and any(last_name(path) in TEXT_MAKERS for paths in arguments for path in paths):
            self.found.texts.append(frozenset({UNKNOWN}))  # the callee may call its argument
        for name in called:
            if Path("global", "type") in callee and len(arguments) == 1:
                self.taken = frozenset(path.then("__class__") for path in arguments[0])
            if name == "vars" and arguments:
                self.found.asked.append(Asked(arguments[0], is_own=True))
            if name in NAMING:
                self.namings -= 1
                self._names(arguments, NAMING[name])

    def _names(self, arguments: Sequence[Paths], at: int) -> None:
        named = arguments[at] if at < len(arguments) else frozenset({UNKNOWN})
        # The name that a `__getattr__` is given is named by other code.
        count = self.code.co_argcount
        own = Path("argument", "".join(self.code.co_varnames[count - 1 : count]))  # the last, in a class or a module
        if named == {own} and self.code.co_name == "__getattr__":
            return
        of = arguments[0] if at else frozenset({UNKNOWN})
        for path in named:
            if path.root != "constant":
                self._ask(of, path.name if path.root == "begins" else "")

    def _ask(self, of: Paths, begins: str = "") -> None:
        self.found.reflects = True
        self.found.asked.append(Asked(of, begins))

    def _loaded(self, name: str, owner: Paths) -> None:
        """Note what a name, or an attribute of `owner`, tells when code loads it."""
        self.found.reflects |= name in REFLECTION
        self.found.equates |= name in EQUATING
        self.namings += name in NAMING
        if name in MEMBERS:
            self._ask(frozenset({UNKNOWN}))
        if name == "__dict__":
            self.found.asked.append(Asked(owner, is_own=True))

    # Loads.

    def _load_global(self, instruction: dis.Instruction) -> None:
        name = instruction.argval
        self.found.globals.add(name)
        self._loaded(name, frozenset())
        self._push(frozenset({Path("global", name)}), instruction)

    _load_name = _load_global

    def _load_deref(self, instruction: dis.Instruction) -> None:
        name = instruction.argval
        of_here = name in self.local or name not in self.code.co_freevars
        paths = self.local.get(name, frozenset({FRESH})) if of_here else frozenset({Path("free", name)})
        self._push(paths, instruction)

    _load_classderef = _load_deref
    _load_closure = _load_deref

    def _load_attr(self, instruction: dis.Instruction) -> None:
        name, owner = instruction.argval, self._taken()
        self.found.add_name(name, owner if self.is_sole else None)
        self._loaded(name, owner)
        self._push(frozenset(path.then(name) for path in owner), instruction, popped=1)

    _load_method = _load_attr

    def _load_super_attr(self, instruction: dis.Instruction) -> None:
        self.found.add_name(instruction.argval)
        self._other(instruction)

    def _import_name(self, instruction: dis.Instruction) -> None:
        """Push `a` for `import a.b`, else the module that is named, with a dot in front for each level."""
        self._pop()
        self._pop()
        (level, wanted), name = self.latest, instruction.argval
        name = "." * level + name if level or wanted else name.partition(".")[0]
        self._push(frozenset({Path("import", name)}), instruction, popped=2)

    def _import_from(self, instruction: dis.Instruction) -> None:
        owner = self._top(1)
        self.found.add_name(instruction.argval, owner if self.is_sole else None)
        self._loaded(instruction.argval, owner)
        self._push(frozenset(path.then(instruction.argval) for path in owner), instruction)

    def _check_exc_match(self, instruction: dis.Instruction) -> None:
        self.found.catches.append(self.stack[-1] if self.stack else frozenset({UNKNOWN}))
        self._other(instruction)

    _check_eg_match = _check_exc_match

    # Stores.

    def _store_fast(self, instruction: dis.Instruction) -> None:
        self._keep(instruction.argval, self._taken())

    def _store_fast_store_fast(self, instruction: dis.Instruction) -> None:
        for name in instruction.argval:
            self._keep(name, self._taken())

    def _store_fast_load_fast(self, instruction: dis.Instruction) -> None:
        stored, loaded = instruction.argval
        self._keep(stored, self._taken())
        self.stack.append(self.local.get(loaded, frozenset({FRESH})))

    def _store_deref(self, instruction: dis.Instruction) -> None:
        if instruction.argval in self.code.co_freevars and instruction.argval not in self.local:
            self.found.writes.append(Path("free", instruction.argval))
        self._keep(instruction.argval, self._taken())

    def _keep(self, name: str, paths: Paths) -> None:
        self.found.keeps_text |= any(map(is_text, paths))
        if any(last_name(path) in NAMING for path in paths):  # then it may be called anywhere
            self._ask(frozenset({UNKNOWN}))
        if name not in self.code.co_freevars or name in self.local:
            constant = CONSTANT if name in self.once else FRESH  # a loop may change the name
            paths = frozenset(constant if is_constant(path) else path for path in paths)
            paths = frozenset(FRESH if path.root == "begins" else path for path in paths)
            self.local[name] = self.local.get(name, frozenset()) | paths

    def _store_global(self, instruction: dis.Instruction) -> None:
        self._pop()
        self.found.globals.add(instruction.argval)
        self.found.writes.append(Path("global", instruction.argval))

    def _delete_global(self, instruction: dis.Instruction) -> None:
        self.found.writes.append(Path("global", instruction.argval))

    def _delete_deref(self, instruction: dis.Instruction) -> None:
        if instruction.argval in self.code.co_freevars and instruction.argval not in self.local:
            self.found.writes.append(Path("free", instruction.argval))

    def _store_attr(self, instruction: dis.Instruction) -> None:
        self._delete_attr(instruction)
        self._pop()

    def _delete_attr(self, instruction: dis.Instruction) -> None:
        self.found.add_name(instruction.argval)
        self.found.sets.add(instruction.argval)
        self.found.writes += [self._written(path, instruction.argval) for path in self._pop_lasting()]

    def _store_subscr(self, instruction: dis.Instruction) -> None:
        self._delete_subscr(instruction)
        self._pop()

    def _store_slice(self, instruction: dis.Instruction) -> None:
        self._pop()  # where the slice ends; where it begins is what `_delete_subscr` takes for the item's name
        self._delete_subscr(instruction)
        self._pop()

    def _delete_subscr(self, instruction: dis.Instruction) -> None:
        self._pop()
        self.found.writes += [self._written(path, ITEM) for path in self._pop_lasting()]

    def _written(self, path: Path, what: str) -> Path:
        return Path("unknown", "?", (what,)) if path.root == "unknown" else path.then(what)
