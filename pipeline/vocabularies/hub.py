"""find_in_cache: a model's folder in the local Hugging Face cache, without any network."""

import os
import re
from pathlib import Path

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def is_hub_name(name: str) -> bool:
    """Tell whether a name is of the form org/name."""
    return _HUB_NAME.fullmatch(name) is not None


def cache_folder() -> Path:
    """Return where Hugging Face's tools keep what they fetched."""
    home = os.environ.get("HF_HOME") or Path(
        os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"
    )
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()


def find_in_cache(name: str) -> Path | None:
    """Return the snapshot of a model's main branch, or its only one; None if there is none."""
    folder = cache_folder() / f"models--{name.replace('/', '--')}"
    main = folder / "refs" / "main"
    if main.is_file():
        snapshot = folder / "snapshots" / main.read_text(encoding="utf-8").strip()
        if snapshot.is_dir():
            return snapshot
    snapshots = sorted(folder.glob("snapshots/*/"))
    return snapshots[0] if len(snapshots) == 1 else None
