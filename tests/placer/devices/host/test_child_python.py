"""A module that is run in a process of its own finds what this process finds, and nothing of the working folder's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from placer.devices.host.child_python import module_command, module_paths


def test_a_file_of_the_working_folder_stands_in_no_modules_place(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('this is no queue')")
    (tmp_path / "apart").mkdir()
    (tmp_path / "apart" / "only_here.py").write_text(
        "import queue, placer; print(placer.__name__, queue.Queue.__name__)"
    )
    paths = {"PYTHONPATH": os.pathsep.join([module_paths()["PYTHONPATH"], str(tmp_path / "apart")])}
    command = module_command("only_here")
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **paths}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "placer Queue\n"), done.stderr
    unsafe = subprocess.run([word for word in command if word != "-P"], cwd=tmp_path, env={**os.environ, **paths})
    assert unsafe.returncode != 0
