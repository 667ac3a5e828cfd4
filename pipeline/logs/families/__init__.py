"""The log families, one module each: a module with a FAMILY joins by being here."""

from importlib import import_module
from pkgutil import iter_modules

from pipeline.logs.records import LogFamily


def _found() -> tuple[LogFamily, ...]:
    modules = [import_module(f"{__name__}.{m.name}") for m in iter_modules(__path__)]
    families = [module.FAMILY for module in modules]
    return tuple(sorted(families, key=lambda family: (family.generic, family.name)))


FAMILIES: tuple[LogFamily, ...] = _found()
"""In the order in which they are asked whether a line is theirs."""
