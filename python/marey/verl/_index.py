"""One index of what a train step recorded: a line of JSON a trace, from every role, rank and process, in the folder itself."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path
from typing import Any

from marey._log import log_once


def name_of(train_step: int | None) -> str:
    """File name of the index of a train step."""
    return "index.jsonl" if train_step is None else f"step{train_step}.index.jsonl"


def append(folder: str | os.PathLike[str], train_step: int | None, entry: dict[str, Any]) -> None:
    """Adds one line. The lock keeps lines whole where several processes, or hosts on one shared folder, write at once. A
    failure is told once and loses the line alone: the trace says all of it itself."""
    line = json.dumps({"train_step": train_step, "host": socket.gethostname(), "pid": os.getpid(), **entry}) + "\n"
    path = Path(folder) / name_of(train_step)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        log_once(f"verl index {folder}", f"cannot write the index {path}: {error.strerror}; the traces are there all the same")
