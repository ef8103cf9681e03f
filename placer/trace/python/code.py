"""What the code of a Python function reads and writes by name, found in its bytecode without running it."""

from __future__ import annotations

import dis
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

from placer.trace.python.instructions import labels_of, stored_by
from placer.trace.python.names import (
    EQUATING,
    KINDS_ASKED,
    MEMBERS,
    NAMING,
    PASSING,
    REFLECTION,
    TEXT_MAKERS,
)
from placer.trace.python.reads import (
    CONSTANT,
    FRESH,
    ITEM,
    NOWHERE,
    TEXT_ROOTS,
    UNKNOWN,
    Asked,
    Call,
    Path,
    Paths,
    Reads,
    attributes_shown,
    beginning,
    held_by,
    is_constant,
    is_text,
    last_name,
    taken_from,
)

PUSHES_NOTHING = ("STORE", "DELETE", "POP", "RETURN", "RAISE", "LIST_", "SET_", "DICT_", "MAP_", "RESUME", "NOP", "END")
TWO = ("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW")
GOES_ON = ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM", "EXTENDED_ARG", "CACHE", "PUSH_NULL")
LEAVES = ("RETURN", "RAISE", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD")
CHAIN = ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME")  # where a path begins that leads to one object alone
VARARGS, VARKEYWORDS = 0x04, 0x08  # flags of a code object
HAS_SPEC = 0x04  # flag of FORMAT_VALUE


@lru_cache(maxsize=4096)
def reads_of(code: CodeType) -> Reads:
    """What a function's code reads and writes, with the functions defined in it."""
    found = Reads()
    _Simulation(code, {}, found).run()
    return found


def is_for_super(code: CodeType) -> bool:
    """Whether a method has its class only for `super()`: it reads nothing of the class, calls and passes it nowhere."""
    reads, own = reads_of(code), Path("free", "__class__")
    given = (path for call in reads.calls for paths in (call.callee, *call.arguments) for path in paths)
    return not any((path.root, path.name) == own[:2] and path.attributes for path in reads.paths) and own not in given


class _Simulation:
    """Walks through the code once, with a stack of the paths by which each value was reached."""

    def __init__(self, code: CodeType, outer: Mapping[str, Paths], found: Reads) -> None:
        self.code, self.found = code, found
        count = code.co_argcount + code.co_kwonlyargcount
        count += bool(code.co_flags & VARARGS) + bool(code.co_flags & VARKEYWORDS)
        self.local: dict[str, Paths] = {name: outer[name] for name in code.co_freevars if name in outer}
        self.local |= {name: frozenset({Path("argument", name)}) for name in code.co_varnames[:count]}
        self.stack: list[Paths] = []
        self.at_target: dict[int, list[Paths]] = {}
        self.latest: list[Any] = [None, None]  # the arguments of the latest two instructions
        self.keywords: tuple[str, ...] = ()  # of the call that comes next
        self.before = ""  # the name of the instruction before
        self.taken: Paths = frozenset({FRESH})  # what the call that comes next gives
        self.namings = 0  # functions of NAMING that were loaded, and are not called yet
        self.is_sole = False  # whether the paths on top are of one object, whichever way the code went
        self.once = {name for name, number in Counter(stored_by(code)).items() if number == 1}

    def run(self) -> None:
        """Fill `found`."""
        left = False  # whether the instruction before goes elsewhere
        for instruction in dis.get_instructions(self.code):
            self.is_sole &= instruction.offset not in self.at_target
            if instruction.offset in self.at_target:
                there = self.at_target[instruction.offset]
                same = not left and len(there) == len(self.stack)
                self.stack = [a | b for a, b in zip(there, self.stack, strict=True)] if same else list(there)
            elif left:
                self.stack = []
            if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
                self._jump(instruction)
            self._step(instruction)
            left = instruction.opname.startswith(LEAVES)
            if self.before == "PUSH_EXC_INFO" and instruction.opname == "POP_TOP":  # `except:`, which asks for no class
                self.found.catches.append(frozenset({UNKNOWN}))
            self.is_sole = (self.is_sole and instruction.opname in GOES_ON) or instruction.opname in CHAIN
            self.before = instruction.opname
            if self.before != "EXTENDED_ARG":
                self.latest = [self.latest[1], instruction.argval]
        if self.namings > 0:  # one is passed on
            self._ask(frozenset({UNKNOWN}))
        labels = labels_of(self.code)
        for constant in self.code.co_consts:
            if isinstance(constant, CodeType):
                _Simulation(constant, self.local, self.found).run()
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

    def _jump(self, instruction: dis.Instruction) -> None:
        if isinstance(instruction.argval, int) and instruction.argval > instruction.offset:
            effect = dis.stack_effect(instruction.opcode, instruction.arg, jump=True)
            there = self.stack[:effect] if effect < 0 else [*self.stack, *[frozenset({UNKNOWN})] * effect]
            self.at_target.setdefault(instruction.argval, there)

    def _step(self, instruction: dis.Instruction) -> None:
        handler = getattr(self, f"_{instruction.opname.lower()}", None)
        if handler is not None:
            handler(instruction)
        elif instruction.opname.startswith("LOAD_FAST"):
            self._load_fast(instruction)
        else:
            self._other(instruction)

    def _other(self, instruction: dis.Instruction) -> None:
        effect = dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        name = instruction.opname
        if name == "MATCH_CLASS":
            self.found.reflects = True
        pushes = 0 if name.startswith(PUSHES_NOTHING) or (effect < 0 and "JUMP" in name) else max(1, effect)
        if name == "PRECALL":
            pushes = 0
        for _ in range(pushes - effect):
            self._pop()
        self.stack += [frozenset({FRESH})] * pushes

    def _pop(self) -> Paths:
        paths = self._taken()
        self.found.passed.update(path for path in paths if path.root not in NOWHERE)
        return paths

    def _taken(self) -> Paths:
        """What is on top, which goes nowhere else."""
        return self.stack.pop() if self.stack else frozenset({UNKNOWN})

    def _pop_top(self, instruction: dis.Instruction) -> None:
        self._taken()

    def _pop_lasting(self) -> Paths:
        """What is on top, as far as the code did not make it."""
        return frozenset(path for path in self._pop() if path.root not in ("fresh", *TEXT_ROOTS))

    def _top(self, depth: int) -> Paths:
        return self.stack[-depth] if 0 < depth <= len(self.stack) else frozenset({UNKNOWN})

    def _push(self, paths: Paths, instruction: dis.Instruction, popped: int = 0) -> None:
        """Push paths, and below them what else the instruction pushes."""
        effect = dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        self.stack += [paths] * (effect + popped)
        self.found.paths.update(path for path in paths if path.root not in NOWHERE)

    def _extended_arg(self, instruction: dis.Instruction) -> None:
        """A part of the next instruction."""

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

    def _unpack_sequence(self, instruction: dis.Instruction) -> None:
        effect = dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        self.stack += [frozenset(path.then(ITEM) for path in self._pop())] * (effect + 1)

    _unpack_ex = _unpack_sequence

    def _build_string(self, instruction: dis.Instruction) -> None:
        parts = [self._pop() for _ in range(instruction.arg or 0)]
        self.stack.append(beginning(parts[-1]) if parts else frozenset({FRESH}))

    def _format_value(self, instruction: dis.Instruction) -> None:
        has_spec = (instruction.arg or 0) & HAS_SPEC
        self.found.texts.append(self._top(2 if has_spec else 1))
        self._other(instruction)

    def _convert_value(self, instruction: dis.Instruction) -> None:
        """As of `!r`: what becomes text next is still the object."""

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
        """A call of what is below its `count` arguments on the stack, where there is a null or a `self`, too."""
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
            self.found.texts.append(frozenset({UNKNOWN}))  # what it is passed to may call it
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
        # What `__getattr__` is asked for, other code names.
        count = self.code.co_argcount
        own = Path("argument", "".join(self.code.co_varnames[count - 1 : count]))  # of a class's, or of a module's
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
        """A name or an attribute of an owner."""
        self.found.reflects |= name in REFLECTION
        self.found.equates |= name in EQUATING
        self.namings += name in NAMING
        if name in MEMBERS:
            self._ask(frozenset({UNKNOWN}))
        if name == "__dict__":
            self.found.asked.append(Asked(owner, is_own=True))

    # Loads.

    def _load_fast(self, instruction: dis.Instruction) -> None:
        names = instruction.argval if instruction.opname in TWO else (instruction.argval,)
        for name in names:
            self.stack.append(self.local.get(name, frozenset({FRESH})))

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
        """Gives `a` for `import a.b`, else the module that is named, with a dot in front for each level."""
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

    def _binary_subscr(self, instruction: dis.Instruction) -> None:
        self._pop()
        self.stack.append(frozenset(path.then(ITEM) for path in self._pop()))

    def _get_iter(self, instruction: dis.Instruction) -> None:
        self.stack.append(frozenset(path.then(ITEM) for path in self._pop()))

    def _for_iter(self, instruction: dis.Instruction) -> None:
        self.stack.append(self.stack[-1] if self.stack else frozenset({UNKNOWN}))

    def _check_exc_match(self, instruction: dis.Instruction) -> None:
        self.found.catches.append(self.stack[-1] if self.stack else frozenset({UNKNOWN}))
        self._other(instruction)

    _check_eg_match = _check_exc_match

    # The stack itself.

    def _copy(self, instruction: dis.Instruction) -> None:
        depth = instruction.arg or 1
        self.stack.append(self.stack[-depth] if depth <= len(self.stack) else frozenset({UNKNOWN}))

    def _swap(self, instruction: dis.Instruction) -> None:
        depth = instruction.arg or 1
        while len(self.stack) < depth:
            self.stack.insert(0, frozenset({UNKNOWN}))
        self.stack[-1], self.stack[-depth] = self.stack[-depth], self.stack[-1]

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
