"""In which folders does a change decide what a path names? Its own, and that of every link on the way."""

from __future__ import annotations

from pathlib import Path

MAX_LINKS = 40
"""Links on one path, as the kernel bounds them; more of them go in a circle."""

Folder = tuple[str, int, int]
"""A folder's path, device and inode: another folder may come to stand at the same path."""


def folders_of(path: Path) -> frozenset[Folder]:
    """Return the folders to watch for an absolute path; those that do not exist are left out.

    For `/etc/app/settings.toml -> ..data/settings.toml` and `..data -> ..2026_10_01/` these are `/etc/app` and
    `/etc/app/..2026_10_01`.
    """
    at, todo, links = Path(path.anchor), list(reversed(path.parts[1:])), 0
    folders: set[Folder] = set()
    while todo:
        name = todo.pop()
        here = at.parent if name == ".." else at / name
        if here.is_symlink() and links < MAX_LINKS:
            links += 1
            folders |= _known(at)
            target = here.readlink()
            at = Path(target.anchor) if target.is_absolute() else at
            todo += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            continue
        if not todo:
            folders |= _known(at)
        at = here
    return frozenset(folders)


def _known(folder: Path) -> set[Folder]:
    try:
        stat = folder.stat()
    except OSError:
        return set()
    return {(str(folder), stat.st_dev, stat.st_ino)}
