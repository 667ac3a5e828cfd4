"""@kernel, the only numba decorator of the project, and the folder that keeps compiled kernels.

numba's own cache looks only at the file of the function it compiles: an edit in a callee or a
constant elsewhere is not seen (numba issue 1833). So the folder's name carries a hash of every
file that holds kernels, and constants that kernels use live in those files.
"""

import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

NONE = -1
"""No node, no edge, no replica, inside kernels; outside it is None or null."""

_PACKAGE = Path(__file__).parent
_MARK = "from pipeline.kernel import"


def kernel(
    function: Callable[..., Any] | None = None,
    *,
    signature: Any = None,
    allocates: bool = False,
    inner: bool = False,
    inline: bool = True,
    checked: bool = False,
) -> Any:
    """Compile a function in nopython mode, without the GIL, kept on disk if that is possible.

    `signature` fixes the types, as a routing policy needs to be passed to a kernel. Only a kernel
    that `allocates` arrays counts references to them: in all others that would cost more than
    the work, two atomic instructions for each array of the state at every call.

    One that is `inner` is called by kernels alone, never by Python (which would crash): what
    Python needs to call it takes as long to compile as the kernel itself. It becomes part of its
    callers, because a call with the state costs some 100 ns, unless it is large and not to
    `inline`.

    One that is `checked` is not ours: it may allocate, an index out of bounds is an error, and it
    is not kept, because nothing would notice an edit in what it calls.
    """
    if function is None:
        options = {"signature": signature, "allocates": allocates, "inner": inner}
        return lambda f: kernel(f, **options, inline=inline, checked=checked)
    folder = None if checked else cache_folder()
    njit: Any = numba.njit
    options = {"no_cpython_wrapper": inner, "no_cfunc_wrapper": inner}
    options["forceinline"] = inner and inline
    options["boundscheck"] = checked or None
    allocates = allocates or checked
    compiled = njit(signature, nogil=True, _nrt=allocates, cache=folder is not None, **options)
    settings: Any = numba.config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = str(folder or "")
    try:
        return compiled(function)
    finally:
        settings.CACHE_DIR = before


def kernel_sources() -> list[Path]:
    """Return the files of the package that hold kernels or constants of kernels."""
    files = sorted(_PACKAGE.rglob("*.py"))
    return [f for f in files if f == Path(__file__) or _MARK in f.read_text(encoding="utf-8")]


@cache
def cache_folder() -> Path | None:
    """Return the writable folder of compiled kernels, or None after one warning.

    The first that can be written of: REPLAY_CACHE_DIR, the package's __pycache__, the user's
    cache folder.
    """
    key = hashlib.blake2b(digest_size=8)
    for file in kernel_sources():
        key.update(file.read_bytes())
    for parent in _cache_parents():
        folder = parent / f"kernels-{key.hexdigest()}"
        if _is_writable(folder):
            return folder
    sys.stderr.write(
        "replay: no writable folder for compiled kernels, so they compile at every start;"
        " set REPLAY_CACHE_DIR to a folder that can be written\n"
    )
    return None


def is_cold() -> bool:
    """Tell whether kernels would be kept but none of these sources has been compiled yet."""
    folder = cache_folder()
    return folder is not None and next(folder.rglob("*.nbi"), None) is None


def _cache_parents() -> list[Path]:
    named = os.environ.get("REPLAY_CACHE_DIR")
    if named:
        return [Path(named)]
    parents = [_PACKAGE / "__pycache__"]
    if os.environ.get("XDG_CACHE_HOME"):
        parents.append(Path(os.environ["XDG_CACHE_HOME"], "replay-pipeline"))
    elif os.environ.get("HOME"):
        parents.append(Path(os.environ["HOME"], ".cache", "replay-pipeline"))
    return parents


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


@intrinsic
def _trailing_zeros(_context: Any, word: Any) -> Any:
    """Count the zero bits below the lowest set bit of a uint64 that is not 0, in a kernel."""

    def code(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(word), code


trailing_zeros: Any = _trailing_zeros
