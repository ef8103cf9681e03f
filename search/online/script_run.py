"""Runs the script of a live step from call to call: starts it, sends it seconds, sets the modes that it chooses, starts
another script after devices were lost, and ends it. Whatever goes wrong in the script, the training goes on.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress

from placer.errors import BadInputError, PlacerError, warn
from placer.train.live_step import LiveStep
from placer.train.steps.modes import UNTOUCHED, Mode, Wanted
from search.online.controller import Controller
from search.online.interfaces import Steps
from search.online.journal import Journal


class ScriptRun:
    """The script of one live step; `controller` writes it.

    given: returns the mapping that the program named; None for a search. If that mapping cannot be used, the next call
    of the step raises the error.
    """

    def __init__(
        self, live: LiveStep, controller: Controller, journal: Journal, given: Callable[[], Wanted] | None = None
    ) -> None:
        self.live, self.controller, self.journal, self.given = live, controller, journal, given
        self._script: Steps[None] | None = self._first()
        self.live.mode = next(self._script)
        self._generation: int | None = None  # of the devices that the script uses; None if it uses none
        self._is_stale = False  # whether the script must be replaced, because it used a device that was lost

    @property
    def is_over(self) -> bool:
        """Whether the script has ended."""
        return self._script is None

    def after(self, step_s: float, was_asleep: bool) -> bool:
        """Let the script choose the mode of the next call, after a call of the main signature that took `step_s`.

        Returns False if a new script began, or if the script was sent nothing, because the machine was suspended during
        the call (`was_asleep`).
        """
        session, controller = self.live.session, self.controller
        is_new = session.generation not in (self._generation, controller.generation)
        is_left_behind = self._generation is not None and is_new and not self.live.is_resting
        begins = self._is_stale or is_left_behind
        if begins:
            self._script = controller.script_after_joining()
        elif was_asleep and self.live.failed is None:
            return False  # the script is sent the seconds of the next call in this mode instead
        self._note_generation(self.live.is_joined and not self.live.is_resting)
        self._choose(lambda script: self._next_mode(script, None if begins else step_s))
        return not begins

    def after_another(self) -> bool:
        """Handle a call of a signature other than the main one; the script is sent nothing of it. Returns whether the
        program went over to another signature for good, so that a new script began.
        """
        before = self._script
        self._choose(self._gone_over)
        return self._script is not None and self._script is not before

    def leave_alone(self) -> None:
        """End the search of a step that must run untouched for good, and free what was held for placing it."""
        self.controller.end_for_good()
        self._let_go()

    def end(self) -> None:
        """End the script; harmless when called twice."""
        self._close()
        self._script = None

    def forget(self) -> None:
        """Go on without the script, which another thread may be running."""
        self._script = None

    def _first(self) -> Steps[None]:
        return self.controller.script() if self.given is None else self.controller.place(self.given)

    def _note_generation(self, uses_devices: bool) -> None:
        """Note which devices the script uses from now on, if any."""
        self._generation = self.live.session.generation if uses_devices else None
        self._is_stale = False

    def _choose(self, next_mode: Callable[[Steps[None]], Mode]) -> None:
        """If there is a script, set the mode of the next call to what `next_mode` returns for it. Raises BadInputError
        if the mapping given cannot be used.
        """
        script, session = self._script, self.live.session
        if script is None:
            return
        if inspect.getgeneratorstate(script) == inspect.GEN_RUNNING:
            self.live.leave_alone("several threads call it at once, and a search needs its calls one by one")
            return
        losses = len(session.recovery.losses)
        try:
            mode = next_mode(script)
        except BadInputError as error:
            self._give_up(str(error))
            if self.given is not None:
                raise
        except Exception as error:  # a bug in Placer must not end the user's training
            if len(session.recovery.losses) > losses or session.recovery.is_loss(error):
                self._look_anew()  # meanwhile a reader in another thread may have gone on without the lost device
                return
            self._give_up(f"{type(error).__name__}: {error}")
        except BaseException:  # Ctrl-C, which ends the script
            self._begin_again()
            raise
        else:
            self.live.mode = mode
        raises = self.given is not None and not self.controller.is_captured  # then `capture` will raise the reason
        if self.live.left_alone and self._script is not None and not raises:
            self.leave_alone()

    def _next_mode(self, script: Steps[None], sent_s: float | None) -> Mode:
        """Return the script's next mode. sent_s: seconds that the script is sent; None starts it."""
        failed, self.live.failed = self.live.failed, None
        if failed is None:
            return next(script) if sent_s is None else script.send(sent_s)
        mode, why = failed
        self.controller.trials.drop(mode)
        sentence = f"a mapping of {mode.name} failed in its first step of the training, which was undone: {why}"
        self._note_error(sentence)
        return script.throw(PlacerError(sentence))

    def _gone_over(self, script: Steps[None]) -> Mode:
        """Return the current mode, or the first mode of a new script if the program went over to another signature for
        good.
        """
        self.controller.look_aside()
        successor = self.live.successor if self.controller.settings.search else None
        if successor is None:
            return self.live.mode
        script.close()
        self.live.go_over(successor)
        self._note_generation(self.live.is_joined)
        self._script = self.controller.script_of_another()
        return next(self._script)

    def _look_anew(self) -> None:
        """Go on without a device that was lost while the script used it. A new script starts after the next call."""
        self.live.session.suspect()
        self._is_stale = True
        self.live.mode = self.controller.mode

    def _begin_again(self) -> None:
        """Replace a script that was interrupted. If no devices were joined yet, the new one starts at the beginning."""
        if self.controller.topology is not None:
            self._look_anew()
        else:
            self._script = self._first()
            self.live.mode = next(self._script)

    def _give_up(self, why: str) -> None:
        self._note_error(f"the search ended, training goes on as it is: {why}")
        self.live.mode = self.controller.mode
        self.controller.stop_search()
        if self.live.mode is UNTOUCHED:
            self.live.leave_alone(why)
            self._let_go()
        self._script = None
        # Last, because the program may turn warnings into errors.
        warn(f"{self.live.name}: {why} The step goes on as it is.")

    def _let_go(self) -> None:
        """End the search, and free what was held for placing the step. Calls bypass Placer only afterwards, because
        leaving workers gives variables new storage.
        """
        self._close()
        try:
            self.controller.trials.free()
            self.live.let_go()
        except Exception as error:  # for example, a lost device must not end the user's training
            self._note_error(f"the devices could not be left: {type(error).__name__}: {error}")
        self._script = None

    def _close(self) -> None:
        if self._script is not None:
            with suppress(ValueError):  # another thread is running the script
                self._script.close()

    def _note_error(self, sentence: str) -> None:
        self.journal.entry(self.controller.narrator.step, "error", sentence)
