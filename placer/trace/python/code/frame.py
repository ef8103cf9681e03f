"""Walks through the bytecode of a function, with the paths by which each value on its stack was reached."""

from __future__ import annotations

import dis
from collections.abc import Mapping
from types import CodeType
from typing import Any

from placer.trace.python.code.paths import FRESH, ITEM, NOWHERE, UNKNOWN, Path, Paths
from placer.trace.python.code.reads import Reads

PUSHES_NOTHING = ("STORE", "DELETE", "POP", "RETURN", "RAISE", "LIST_", "SET_", "DICT_", "MAP_", "RESUME", "NOP", "END")
TWO = ("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW")
GOES_ON = ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM", "EXTENDED_ARG", "CACHE", "PUSH_NULL")
LEAVES = ("RETURN", "RAISE", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD")
CHAIN = ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME")  # begin a path that leads to exactly one object
VARARGS, VARKEYWORDS = 0x04, 0x08  # flags of a code object


class Frame:
    """One walk through code: its stack, its local names, and the reads that were found.

    Each instruction is handled by the method with its name (`_store_attr`), which is in a subclass if it does more than
    move values. An instruction without a method is handled by its effect on the stack.
    """

    def __init__(self, code: CodeType, outer: Mapping[str, Paths], found: Reads) -> None:
        self.code, self.found = code, found
        count = code.co_argcount + code.co_kwonlyargcount
        count += bool(code.co_flags & VARARGS) + bool(code.co_flags & VARKEYWORDS)
        self.local: dict[str, Paths] = {name: outer[name] for name in code.co_freevars if name in outer}
        self.local |= {name: frozenset({Path("argument", name)}) for name in code.co_varnames[:count]}
        self.stack: list[Paths] = []
        self.at_target: dict[int, list[Paths]] = {}
        self.latest: list[Any] = [None, None]  # the arguments of the latest two instructions
        self.before = ""  # the name of the instruction before
        self.is_sole = False  # whether the paths on top lead to one object, whichever way the code went

    def walk(self) -> None:
        """Go through all instructions in order."""
        left = False  # whether the instruction before never continues here
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
            self.is_sole = (self.is_sole and instruction.opname in GOES_ON) or instruction.opname in CHAIN
            self.before = instruction.opname
            if self.before != "EXTENDED_ARG":
                self.latest = [self.latest[1], instruction.argval]

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
        """Pop what is on top, without noting it as passed on."""
        return self.stack.pop() if self.stack else frozenset({UNKNOWN})

    def _top(self, depth: int) -> Paths:
        return self.stack[-depth] if 0 < depth <= len(self.stack) else frozenset({UNKNOWN})

    def _push(self, paths: Paths, instruction: dis.Instruction, popped: int = 0) -> None:
        """Push paths, once for each value that the instruction pushes, and note them as read. popped: the number of
        values that were popped for the instruction.
        """
        effect = dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        self.stack += [paths] * (effect + popped)
        self.found.paths.update(path for path in paths if path.root not in NOWHERE)

    # Instructions that only move values.

    def _extended_arg(self, instruction: dis.Instruction) -> None:
        """Do nothing: this is a part of the next instruction."""

    def _load_fast(self, instruction: dis.Instruction) -> None:
        names = instruction.argval if instruction.opname in TWO else (instruction.argval,)
        for name in names:
            self.stack.append(self.local.get(name, frozenset({FRESH})))

    def _unpack_sequence(self, instruction: dis.Instruction) -> None:
        effect = dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        self.stack += [frozenset(path.then(ITEM) for path in self._pop())] * (effect + 1)

    _unpack_ex = _unpack_sequence

    def _binary_subscr(self, instruction: dis.Instruction) -> None:
        self._pop()
        self.stack.append(frozenset(path.then(ITEM) for path in self._pop()))

    def _get_iter(self, instruction: dis.Instruction) -> None:
        self.stack.append(frozenset(path.then(ITEM) for path in self._pop()))

    def _for_iter(self, instruction: dis.Instruction) -> None:
        self.stack.append(self.stack[-1] if self.stack else frozenset({UNKNOWN}))

    def _copy(self, instruction: dis.Instruction) -> None:
        depth = instruction.arg or 1
        self.stack.append(self.stack[-depth] if depth <= len(self.stack) else frozenset({UNKNOWN}))

    def _swap(self, instruction: dis.Instruction) -> None:
        depth = instruction.arg or 1
        while len(self.stack) < depth:
            self.stack.insert(0, frozenset({UNKNOWN}))
        self.stack[-1], self.stack[-depth] = self.stack[-depth], self.stack[-1]
