"""The user's own policy, `--policy my_module:my_function`: found, checked and compiled."""

import dis
import functools
import importlib
import inspect
import math
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from numba import types

from pipeline.config import TIES, find_view
from pipeline.errors import UsageError
from pipeline.kernel import kernel
from pipeline.replay.policies.rule import SIGNATURE, Parameter, Policy, Score
from pipeline.replay.records import (
    ACTIVE,
    LOAD,
    PREFIX,
    RECENCY,
    REPLICA,
    REPLICA_SHOWN,
    REQUEST,
    REQUEST_SHOWN,
    SESSION,
)

ARGUMENTS = ("request", "replicas", "parameters", "memory")
_EVERYTHING = LOAD | ACTIVE | RECENCY | PREFIX | SESSION
_FIELDS = {*(REPLICA.names or ()), *(REQUEST.names or ())}
_TO_READ = tuple(name for name, _, _ in (*REPLICA_SHOWN, *REQUEST_SHOWN))
_HIDDEN = _FIELDS - {*_TO_READ}
_TO_WRITE = {"score", "branch"}
_LISTS = (
    ("parameters", Parameter, "Parameter(name, default, low, high, meaning)"),
    ("scores", Score, "Score(name)"),
)
_RECORD = re.compile(r"Record\(.*?;(?:True|False)\)")
_LONGEST_REASON = 300


def load_policy(text: str) -> Policy:
    """Return the policy MODULE:NAME, which is a function, an `@njit` function or a Policy.

    The module may lie in the current folder. A function gets all that a policy can see, and what
    it returns is explained by its scores alone. UsageError says what is wrong and what to do.
    """
    module_name, _, name = text.partition(":")
    if not module_name or not name:
        raise UsageError(f"policy {text!r}: give MODULE:FUNCTION, for example my_module:my_policy")
    module = _imported(text, module_name)
    if not hasattr(module, name):
        hint = _hint(name, _rules_of(module))
        raise UsageError(f"policy {text!r}: module {module_name} has no {name}{hint}")
    found = getattr(module, name)
    if isinstance(found, Policy):
        return _checked(text, found)
    return Policy(
        _checked_rule(text, found),
        source=text,
        scores=(Score(f"score of {text}"),),
        needs=_EVERYTHING,
        draws=True,
    )


def _rules_of(module: ModuleType) -> Iterator[str]:
    for name, value in vars(module).items():
        function = getattr(value, "py_func", value)
        own = inspect.isfunction(function) and function.__module__ == module.__name__
        if (own and not name.startswith("_")) or isinstance(value, Policy):
            yield name


def compiled_policy(policy: Policy, own: bool) -> Any:
    """Return a policy's function as the replay calls it, compiled once a process.

    One that is the user's `own` may allocate arrays. UsageError if it can't be compiled.
    """
    return _compiled_own(policy.rule) if own else _compiled(policy.rule)


@functools.cache
def _compiled(rule: Callable[..., int]) -> Any:
    return kernel(signature=SIGNATURE)(rule)


@functools.cache
def _compiled_own(rule: Callable[..., int]) -> Any:
    told = f"policy {rule.__module__}:{rule.__name__}"
    file, line = rule.__code__.co_filename, rule.__code__.co_firstlineno
    try:
        compiled = kernel(signature=SIGNATURE.args, checked=True)(rule)
    except Exception as error:  # numba also raises KeyError and others of its own
        line = getattr(getattr(error, "loc", None), "line", line)
        raise UsageError(f"{told}: {_reason(error)} ({file}, line {line})") from error
    returned = compiled.nopython_signatures[0].return_type
    if not isinstance(returned, types.Integer):
        raise UsageError(
            f"{told} returns {_shortened(returned)}: on every way it has to return an integer, the"
            f" chosen one's place in replicas; np.int64(...) makes one ({file}, line {line})"
        )
    if returned == SIGNATURE.return_type:
        return compiled
    return kernel(signature=SIGNATURE, checked=True)(rule)


def _shortened(text: object) -> str:
    return _RECORD.sub("record", str(text))[:_LONGEST_REASON]


def _reason(error: Exception) -> str:
    """Return numba's own reason in a line, without its page of candidates and records."""
    if isinstance(error, KeyError) and error.args:
        return _no_field(str(error.args[0]))
    lines = [" ".join(line.split()) for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith("Failed in nopython mode")]
    if lines and lines[0].endswith("for signature:"):
        lines[0] = " ".join(lines[:2])
    reason = lines[0].removesuffix("Raised from None") if lines else type(error).__name__
    return _shortened(reason.rstrip(" ."))


def _no_field(name: str) -> str:
    return f"neither a request nor a replica has a field {name}{_hint(name, _TO_READ)}"


def _hint(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known := list(known), n=1, cutoff=0.4)
    return f" (did you mean {near[0]}?)" if near else f": it has {', '.join(known) or 'none'}"


@contextmanager
def _current_folder_importable() -> Iterator[None]:
    folder = os.getcwd()  # noqa: PTH109 - sys.path holds text
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)


def _imported(text: str, name: str) -> ModuleType:
    if name.startswith(".") or "/" in name or os.sep in name:
        raise _no_module(text, name)
    try:
        with _current_folder_importable():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise _no_module(text, name) from error
        raise _import_failed(text, name, error) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(text, name, error) from error


def _no_module(text: str, name: str) -> UsageError:
    here = sorted(file.stem for file in Path.cwd().glob("*.py"))
    near = get_close_matches(Path(name.removesuffix(".py")).name, here, n=1, cutoff=0.4)
    hint = f" (did you mean {near[0]}:{text.partition(':')[2]}?)" if near else ""
    return UsageError(
        f"policy {text!r}: there is no module {name}{hint}: give the name of a file in {Path.cwd()}"
        " without .py, or of an installed module"
    )


def _import_failed(text: str, name: str, error: BaseException) -> UsageError:
    where = traceback.extract_tb(error.__traceback__)[-1]
    file, line = where.filename, where.lineno
    if isinstance(error, SyntaxError):
        file, line = error.filename or file, error.lineno
    said = (str(error).splitlines() or [""])[0]
    return UsageError(
        f"policy {text!r}: module {name} can't be imported: {type(error).__name__}: {said}"
        f" ({file}, line {line})"
    )


def _checked_rule(text: str, found: Any) -> Callable[..., int]:
    """Return the Python function of a rule; UsageError unless it can be one."""
    rule = getattr(found, "py_func", found)
    if not inspect.isfunction(rule):
        raise UsageError(
            f"policy {text!r} is of type {type(found).__name__}: give a function of"
            f" ({', '.join(ARGUMENTS)}), or a Policy"
        )
    if inspect.iscoroutinefunction(rule) or inspect.isgeneratorfunction(rule):
        raise UsageError(f"policy {text!r} is async or yields: give a plain function that returns")
    asked = inspect.signature(rule).parameters.values()
    if len(asked) != len(ARGUMENTS) or any(p.kind is not p.POSITIONAL_OR_KEYWORD for p in asked):
        raise UsageError(
            f"policy {text!r} takes ({', '.join(str(p) for p in asked)}): it has to take"
            f" {len(ARGUMENTS)} arguments, ({', '.join(ARGUMENTS)})"
        )
    _check_fields(text, rule)
    return rule


def _check_fields(text: str, rule: Callable[..., int]) -> None:
    """Raise UsageError for fields that a policy is not to read or to write."""
    column = None
    for step in dis.get_instructions(rule):
        subscript = "SUBSCR" in step.opname or step.argrepr == "[]"
        if subscript and isinstance(column, str) and column not in _TO_READ:
            raise UsageError(f"policy {text!r}: {_no_field(column)}")
        if step.opname == "LOAD_ATTR" and step.argval in _HIDDEN:
            raise UsageError(f"policy {text!r}: {_no_field(step.argval)}")
        if step.opname == "STORE_ATTR" and step.argval in _FIELDS - _TO_WRITE:
            raise UsageError(
                f"policy {text!r} writes {step.argval}: of what it is given, a policy may write"
                " replicas[...].score, request.branch and memory"
            )
        column = step.argval if step.opname == "LOAD_CONST" else None


def _checked(text: str, policy: Policy) -> Policy:
    """Return a Policy of the user's with its plain function; UsageError if it can't be one."""
    wrong = None
    for field, kind, form in _LISTS:
        given = getattr(policy, field)
        if not all(isinstance(item, kind) for item in given):
            raise UsageError(f"policy {text!r} has {field}={given!r}: give a tuple of {form}")
    names = [p.name for p in policy.parameters]
    if not policy.scores:
        wrong = "has no scores: name what it compares, scores=(Score(...),)"
    elif len(set(names)) < len(names):
        wrong = f"has two parameters of one name: {', '.join(names)}"
    elif policy.tie not in (None, *TIES):
        wrong = f"has tie={policy.tie!r}: give one of {', '.join(TIES)}, or None"
    elif policy.needs & ~_EVERYTHING:
        wrong = f"has needs={policy.needs}: add up LOAD, ACTIVE, RECENCY, PREFIX and SESSION"
    for name, default, low, high, *_ in policy.parameters:
        if math.isnan(default) or not low <= default <= high:
            wrong = f"has {name}={default}, which is not from {low} to {high}"
    if wrong:
        raise UsageError(f"policy {text!r} {wrong}")
    find_view(policy.view)
    lists: dict[str, Any] = {field: tuple(getattr(policy, field)) for field, _, _ in _LISTS}
    return policy._replace(rule=_checked_rule(text, policy.rule), **lists)
