"""Results of the benchmark that lie on this machine: this project's own, and a folder that its owner names."""

from __future__ import annotations

import os
from pathlib import Path

import streamlit as st

from pattern_studio import StudioError

from .timing_file import MAX_BYTES, OtherStudyError, TimingFile, read

VARIABLE = "PATTERN_STUDIO_RESULTS"  # a folder, set by whoever starts the app: visitors name none
MOST = 100  # files of a folder

HERE = Path(__file__).parent
# Inside the package, or beside it in the repository, which is where `pip install -e` leaves both.
OWN = (HERE / "results", *([HERE.parent / "benchmarks" / "results"] if HERE.name == "app" else []))

Found = tuple[tuple[TimingFile, ...], tuple[str, ...]]


def installed() -> Found:
    """Results of all folders, and a sentence for each file or folder that could not be read."""
    folders = [next((folder for folder in OWN if folder.is_dir()), None), os.environ.get(VARIABLE)]
    found: list[TimingFile] = []
    notes: list[str] = []
    for folder in folders:
        if folder:
            files, wrong = read_folder(Path(folder))
            found, notes = [*found, *files], [*notes, *wrong]
    return tuple(found), tuple(notes)


def read_folder(folder: Path) -> Found:
    """Every .json file of a folder that holds times of kernels; those of other studies are no concern of the page."""
    if not folder.is_dir():
        return (), (f"{VARIABLE}: expected a folder with results of benchmarks.run, got {str(folder)[:200]!r}",)
    paths = sorted(path for path in folder.glob("*.json") if path.is_file())
    notes = [f"{folder.name}: the first {MOST} of {len(paths):,} files are read; keep fewer there"]
    files, wrong = [], notes if len(paths) > MOST else []
    for path in paths[:MOST]:
        stat = path.stat()
        result = _read(str(path), stat.st_mtime_ns, stat.st_size)
        if isinstance(result, TimingFile):
            files.append(result)
        elif result:
            wrong.append(result)
    return tuple(files), tuple(wrong)


@st.cache_resource(max_entries=2 * MOST, show_spinner=False)
def _read(path: str, changed: int, size: int) -> TimingFile | str:
    """A file, or what is wrong with it; "" where it is of another study."""
    name = Path(path).name
    try:
        with open(path, "rb") as file:
            return read(file.read(MAX_BYTES + 1), name)
    except OtherStudyError:
        return ""
    except OSError as error:
        return f"{name}: it can't be read, {error.strerror}; see to its permissions"
    except StudioError as error:
        return str(error)
