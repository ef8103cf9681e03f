"""Where outputs go: links stay links, pipes and devices are written into, and a file is whole or as it was."""

from __future__ import annotations

import os
import re
import select
import socket
import stat
import threading
from pathlib import Path

import pytest

from placer import files
from placer.errors import BadInputError, PlacerError
from placer.files import check_outputs, shortened, write_whole

CONTENT = b"new"
LARGE = bytes(range(256)) * 4096  # more than a pipe holds


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.fixture
def reader(pipe):
    """The end of the pipe from which nothing is read yet."""
    fd = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    yield fd
    os.close(fd)


@pytest.fixture
def device(tmp_path):
    """Makes a character device of its own, like /dev/null (3) or /dev/full (7), where that is permitted."""

    def make(minor):
        path = tmp_path / f"device{minor}"
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
            path.open("wb").close()
        except OSError as error:
            pytest.skip(f"no device can be made here: {error.strerror}")
        return path

    return make


def refused(write, *arguments):
    """The one line with which it is refused."""
    with pytest.raises(PlacerError) as refusal:
        write(*arguments)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_a_link_stays_and_the_file_it_leads_to_is_replaced(tmp_path):
    there, link, second = tmp_path / "folder" / "there", tmp_path / "link", tmp_path / "second"
    there.parent.mkdir()
    there.write_bytes(b"old")
    with there.open("rb") as before:
        link.symlink_to("folder/there")
        second.symlink_to(link)
        write_whole(second, CONTENT)
        assert before.read() == b"old"  # nobody ever sees a half of it
    assert link.is_symlink() and second.is_symlink()
    assert there.read_bytes() == CONTENT and list(there.parent.iterdir()) == [there]


def test_a_link_that_leads_nowhere_makes_its_file(tmp_path):
    link = tmp_path / "link"
    link.symlink_to("there")
    check_outputs(link)
    assert not (tmp_path / "there").exists()
    write_whole(link, CONTENT)
    assert link.is_symlink() and (tmp_path / "there").read_bytes() == CONTENT


def test_two_outputs_are_not_one_file(tmp_path):
    (tmp_path / "link").symlink_to("b")
    check_outputs(tmp_path / "a", None, tmp_path / "b", "/dev/null", "/dev/null")
    for other in (tmp_path / "b", tmp_path / "link"):
        with pytest.raises(BadInputError, match="two outputs would be written there"):
            check_outputs(tmp_path / "b", other)


def test_what_is_read_is_not_replaced(tmp_path):
    read, other = tmp_path / "graph.json", tmp_path / "other.json"
    read.write_bytes(b"old")
    (tmp_path / "link").symlink_to(read)
    (tmp_path / "loop").symlink_to("loop")
    check_outputs(other, "/dev/null", inputs=(read, None, "/dev/null", "resnet50", tmp_path / "loop"))
    for path in (read, tmp_path / "link", tmp_path / "." / "graph.json"):
        with pytest.raises(BadInputError, match="is read by this command, and would be replaced; name another file"):
            check_outputs(other, path, inputs=[read])
    assert read.read_bytes() == b"old"


def test_a_link_to_itself_is_refused(tmp_path):
    link = tmp_path / "link"
    link.symlink_to("link")
    assert "symbolic links" in refused(write_whole, link, CONTENT)
    assert link.is_symlink()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path, mode):
    path, other = tmp_path / "file", tmp_path / "other"
    path.write_bytes(b"old")
    path.chmod(mode)
    write_whole(path, CONTENT)
    assert stat.S_IMODE(path.stat().st_mode) == mode and path.read_bytes() == CONTENT
    other.touch()
    new = tmp_path / "new"
    write_whole(new, CONTENT)
    assert new.stat().st_mode == other.stat().st_mode  # as any program makes one


def test_a_file_may_have_the_longest_name(tmp_path):
    path = tmp_path / ("x" * 255)
    check_outputs(path)
    write_whole(path, CONTENT)
    assert path.read_bytes() == CONTENT


def test_a_pipe_is_written_into(pipe, reader):
    read = []

    def take():
        ready = select.poll()
        ready.register(reader, select.POLLIN)
        while sum(map(len, read)) < len(LARGE) and ready.poll(60_000):
            read.append(os.read(reader, 1 << 16))

    taking = threading.Thread(target=take)
    taking.start()
    write_whole(pipe, LARGE)
    taking.join()
    assert b"".join(read) == LARGE
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_pipe_that_nobody_reads_is_refused_and_stays(pipe):
    check_outputs(pipe)  # somebody may, later
    assert "nobody reads from it" in refused(write_whole, pipe, CONTENT)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_pipe_whose_reader_takes_nothing_is_not_waited_for_for_ever(pipe, reader, monkeypatch):
    monkeypatch.setattr(files, "PIPE_S", 0.01)
    assert "its reader took nothing" in refused(write_whole, pipe, LARGE)


def test_a_link_to_a_pipe_is_one(pipe, reader, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(pipe)
    write_whole(link, CONTENT)
    assert os.read(reader, 100) == CONTENT
    assert link.is_symlink() and stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_device_is_written_into_and_stays_one(device):
    null = device(3)
    for _ in range(2):
        check_outputs(null)
        write_whole(null, CONTENT)
        assert stat.S_ISCHR(null.stat().st_mode)


def test_a_device_that_is_full_is_one_line_and_stays_one(device):
    full = device(7)
    check_outputs(full)
    assert "No space left on device" in refused(write_whole, full, CONTENT)
    assert stat.S_ISCHR(full.stat().st_mode)


@pytest.mark.parametrize("write", [check_outputs, lambda path: write_whole(path, CONTENT)])
def test_what_is_no_output_is_refused(tmp_path, write, monkeypatch):
    assert "is a folder" in refused(write, tmp_path)
    monkeypatch.chdir(tmp_path)  # the address of a socket is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        assert "is a socket" in refused(write, tmp_path / "socket")
        assert stat.S_ISSOCK((tmp_path / "socket").stat().st_mode)
    (tmp_path / "file").touch()
    for path in (tmp_path / "none" / "file", tmp_path / "file" / "file"):
        assert str(path) in refused(write, path)


def test_a_block_device_is_refused(tmp_path):
    path = tmp_path / "disk"
    try:
        os.mknod(path, stat.S_IFBLK | 0o666, os.makedev(7, 250))
    except OSError as error:
        pytest.skip(f"no device can be made here: {error.strerror}")
    assert "is a block device" in refused(write_whole, path, CONTENT)


def test_a_check_leaves_nothing_behind_and_changes_nothing(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    before = path.stat()
    check_outputs(path, tmp_path / "new", None)
    assert path.stat() == before and list(tmp_path.iterdir()) == [path]


def test_no_other_module_writes_an_output():
    """But for the journal, which appends to its own file, and for what benchmarks, loops and hostile input write for
    themselves.
    """
    writes = re.compile(r"\.write_(text|bytes)\(|open\([^)]*\"[wax][b+]?\"")
    home, own = (
        Path(__file__).parents[2],
        ("experiments/benches/", "experiments/fuzz/", "experiments/loops/", "search/online/journal.py"),
    )
    parts = ("placer", "surrogate", "search", "experiments")
    modules = [module for part in parts for module in (home / part).rglob("*.py")]
    names = {str(module.relative_to(home)) for module in modules if writes.search(module.read_text(encoding="utf-8"))}
    assert {name for name in names if not name.startswith(own)} == {"placer/files.py"}


def test_two_runs_that_write_one_file_at_once_leave_one_whole_file(tmp_path, monkeypatch):
    """The second writes it while the first, which has all but its name, waits."""
    target, names, rename = tmp_path / "mapping.json", [], Path.replace

    def replaced(part, place):
        names.append(part.name)
        if len(names) == 1:
            write_whole(target, LARGE)
        return rename(part, place)

    monkeypatch.setattr(Path, "replace", replaced)
    write_whole(target, CONTENT)
    assert target.read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [target]
    assert len(set(names)) == 2


def test_nobody_can_foresee_the_name_of_a_file_in_the_making(tmp_path, monkeypatch):
    """Or another user could put a link there."""
    names, rename = [], Path.replace
    monkeypatch.setattr(Path, "replace", lambda part, place: (names.append(part.name), rename(part, place)))
    for _ in range(8):
        write_whole(tmp_path / "mapping.json", CONTENT)
    assert len(set(names)) == 8
    assert all(re.fullmatch(r"\.[0-9a-f]{16}\.part", name) for name in names)


def test_a_long_name_is_cut_and_told_from_others():
    one, other = shortened("é" * 300 + "a"), shortened("é" * 300 + "b")
    assert one != other and max(len(one.encode()), len(other.encode())) < 200 and shortened("short") == "short"
