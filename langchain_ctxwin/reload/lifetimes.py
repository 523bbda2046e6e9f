"""What becomes of watched files when the process forks or ends? Threads survive neither."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol


class Watched(Protocol):
    """A file that is watched by a thread."""

    def stop(self) -> None:
        """Stop watching."""
        ...

    def hold(self) -> bool:
        """Let nothing change until `release`; False when that cannot be had."""
        ...

    def release(self) -> None:
        """Undo `hold`."""
        ...

    def resume(self) -> None:
        """Watch again in a forked process."""
        ...


class Lifetimes:
    """The watched files of this process."""

    def __init__(self) -> None:
        self._files: weakref.WeakSet[Watched] = weakref.WeakSet()
        self._held: list[Watched] = []
        self.add = self._files.add
        self.discard = self._files.discard
        atexit.register(self._stop)  # before the interpreter is taken down under a thread that needs it
        if hasattr(os, "register_at_fork"):  # not on Windows
            os.register_at_fork(before=self._hold, after_in_parent=self._release, after_in_child=self._resume)

    def _stop(self) -> None:
        for file in list(self._files):
            file.stop()

    def _hold(self) -> None:
        # A fork in the middle of a reload would leave locks, such as those of a log, taken for ever in the child.
        self._held = [file for file in list(self._files) if file.hold()]

    def _release(self) -> None:
        for file in self._held:
            file.release()

    def _resume(self) -> None:
        for file in list(self._files):
            file.resume()


lifetimes = Lifetimes()
