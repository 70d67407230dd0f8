"""What went over NVLink, as the cards' own counters say, and what the link is called."""

from __future__ import annotations

import re
import subprocess

COUNTER = re.compile(r"Data Tx: (\d+) KiB")
SECONDS = 20


def sent_bytes() -> int | None:
    """Bytes that all cards of this host have sent over NVLink so far; None where nothing counts them."""
    return counted(_asked("nvlink", "-gt", "d"))


def counted(report: str) -> int | None:
    """The sum of the report of `nvidia-smi nvlink -gt d`.

    >>> counted("GPU 0: H100\\n\\t Link 0: Data Tx: 3 KiB\\n\\t Link 0: Data Rx: 9 KiB\\n\\t Link 1: Data Tx: 1 KiB")
    4096
    >>> counted("GPU 0: H100\\n\\t Link 0: Data Tx: N/A") is None
    True
    """
    found = COUNTER.findall(report)
    return 1024 * sum(map(int, found)) if found else None


def link() -> str:
    """How the first two cards are joined, as `nvidia-smi topo -m` names it, such as NV18; "unknown" without them."""
    return named(_asked("topo", "-m"))


def named(report: str) -> str:
    """The entry of the first two cards.

    >>> named("\\tGPU0\\tGPU1\\nGPU0\\t X \\tNV18\\nGPU1\\tNV18\\t X ")
    'NV18'
    """
    found = re.search(r"^GPU0\s+X\s+(\S+)", re.sub(r"\x1b\[\d*m", "", report), re.MULTILINE)
    return found[1] if found else "unknown"


def _asked(*words: str) -> str:
    try:
        return subprocess.run(
            ["nvidia-smi", *words], capture_output=True, text=True, timeout=SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""  # no such program or no such counter: the row then says that nothing was counted there
