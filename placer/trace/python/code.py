"""What the code of a Python function reads and writes by name, found in its bytecode without running it."""

from __future__ import annotations

import dis
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import NamedTuple

ITEM = "[]"  # stands for any item of a container among the attributes of a path
PUSHES_NOTHING = ("STORE", "DELETE", "POP", "RETURN", "RAISE", "LIST_", "SET_", "DICT_", "MAP_", "RESUME", "NOP", "END")
TWO = ("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW")
LEAVES = ("RETURN", "RAISE", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD")
REFLECTION = frozenset({"getattr", "hasattr", "vars", "dir", "__dict__", "asdict", "astuple", "attrgetter", "copy"})
REFLECTION |= {"deepcopy", "replace", "dumps", "__getstate__", "__slots__", "getmembers", "fields"}
VARARGS, VARKEYWORDS = 0x04, 0x08  # flags of a code object


class Path(NamedTuple):
    """How code gets at an object: from a name, through attributes."""

    root: str  # "global", "free" (of the enclosing function), "argument", "import", "fresh", or "unknown"
    name: str = ""
    attributes: tuple[str, ...] = ()

    def then(self, attribute: str) -> Path:
        """The path to an attribute of this object."""
        return self if self.root in ("fresh", "unknown") else self._replace(attributes=(*self.attributes, attribute))

    def __str__(self) -> str:
        return ".".join((self.name, *self.attributes)).replace(f".{ITEM}", ITEM)


FRESH, UNKNOWN = Path("fresh"), Path("unknown")
Paths = frozenset[Path]


@dataclass
class Reads:
    """What one code object, and the functions defined in it, do with names."""

    paths: set[Path] = field(default_factory=set)  # read
    writes: list[Path] = field(default_factory=list)  # a name, attribute or item that is written, by its whole path
    names: set[str] = field(default_factory=set)  # of attributes read or written, and constants that may be names
    globals: set[str] = field(default_factory=set)
    catches: list[Paths] = field(default_factory=list)  # what its `except` clauses name; unknown for a bare one
    reflects: bool = False  # whether it may read attributes that it does not name


@lru_cache(maxsize=4096)
def reads_of(code: CodeType) -> Reads:
    """What a function's code reads and writes, with the functions defined in it."""
    found = Reads()
    _Simulation(code, {}, found).run()
    return found


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

    def run(self) -> None:
        """Fill `found`."""
        left = False  # whether the instruction before goes elsewhere
        before = ""
        for instruction in dis.get_instructions(self.code):
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
            if before == "PUSH_EXC_INFO" and instruction.opname == "POP_TOP":  # `except:`, which asks for no class
                self.found.catches.append(frozenset({UNKNOWN}))
            before = instruction.opname
        for constant in self.code.co_consts:
            if isinstance(constant, CodeType):
                _Simulation(constant, self.local, self.found).run()
            self._constant(constant)

    def _constant(self, constant: object) -> None:
        if isinstance(constant, str) and constant.isidentifier():
            self.found.names.add(constant)
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
        return self.stack.pop() if self.stack else frozenset({UNKNOWN})

    def _push(self, paths: Paths, instruction: dis.Instruction, popped: int = 0) -> None:
        """Push paths, and below them what else the instruction pushes."""
        effect = dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        self.stack += [paths] * (effect + popped)
        for path in paths - {FRESH, UNKNOWN}:
            self.found.paths.add(path)

    # Loads.

    def _load_fast(self, instruction: dis.Instruction) -> None:
        names = instruction.argval if instruction.opname in TWO else (instruction.argval,)
        for name in names:
            self.stack.append(self.local.get(name, frozenset({FRESH})))

    def _load_global(self, instruction: dis.Instruction) -> None:
        name = instruction.argval
        self.found.globals.add(name)
        self.found.reflects |= name in REFLECTION
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
        name = instruction.argval
        self.found.names.add(name)
        self.found.reflects |= name in REFLECTION
        self._push(frozenset(path.then(name) for path in self._pop()), instruction, popped=1)

    _load_method = _load_attr

    def _load_super_attr(self, instruction: dis.Instruction) -> None:
        self.found.names.add(instruction.argval)
        self._other(instruction)

    def _import_name(self, instruction: dis.Instruction) -> None:
        self._pop()
        self._pop()
        self._push(frozenset({Path("import", instruction.argval)}), instruction, popped=2)

    def _import_from(self, instruction: dis.Instruction) -> None:
        owner = self.stack[-1] if self.stack else frozenset({UNKNOWN})
        self.found.names.add(instruction.argval)
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
        self._keep(instruction.argval, self._pop())

    def _store_deref(self, instruction: dis.Instruction) -> None:
        if instruction.argval in self.code.co_freevars and instruction.argval not in self.local:
            self.found.writes.append(Path("free", instruction.argval))
        self._keep(instruction.argval, self._pop())

    def _keep(self, name: str, paths: Paths) -> None:
        if name not in self.code.co_freevars or name in self.local:
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
        self.found.names.add(instruction.argval)
        self.found.writes += [self._written(path, instruction.argval) for path in self._pop() - {FRESH}]

    def _store_subscr(self, instruction: dis.Instruction) -> None:
        self._delete_subscr(instruction)
        self._pop()

    def _delete_subscr(self, instruction: dis.Instruction) -> None:
        self._pop()
        self.found.writes += [self._written(path, ITEM) for path in self._pop() - {FRESH}]

    def _written(self, path: Path, what: str) -> Path:
        return Path("unknown", "?", (what,)) if path.root == "unknown" else path.then(what)
