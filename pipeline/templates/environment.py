"""TemplateEnvironment: jinja2 as engines set it up for chat templates, within a budget."""

import json
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from pipeline.templates.budget import CALL, Budget, ExhaustedError

_LEFT_OUT = (
    "random",
    "pprint",
    "urlize",
    "xmlattr",
    "wordwrap",
    "batch",
    "slice",
    "filesizeformat",
)
"""Filters that are no help to a chat template, by chance or without bounds."""
_OF_DICTS = frozenset(dir(dict))
_OF_LOOPS = frozenset({"first", "last", "index", "index0", "length"})
_JOINED, _COUNTED = " joined", " counted"  # filters that no source can name


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox in which a rendering ends after so many steps and characters.

    Like the environment of transformers, which vLLM and SGLang use: the same settings, extensions
    and helpers; but an attribute that is private is an error, not an empty text.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        self.budget = Budget()
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=self._finalize,
            extensions=[_GenerationTag, loopcontrols],
        )
        self.concat = self._concat  # type: ignore[method-assign]
        self.filters |= {"tojson": to_json}
        for name in _LEFT_OUT:
            del self.filters[name]
        self.filters = {name: self._bounded(name, f) for name, f in self.filters.items()}
        self.filters |= {_JOINED: self._joined, _COUNTED: self._counted}
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception

    def compile_bounded(self, tree: nodes.Template) -> Template:
        """Return what a parsed source renders with; the tree is changed."""
        bounded = _Bounding().visit(tree).set_environment(self)
        return self.from_string(bounded)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Do what the sandbox does, at once for what is known to be safe."""
        kind = type(obj)
        if kind is dict and attribute not in _OF_DICTS:
            try:
                return obj[attribute]
            except KeyError:
                return self.undefined(obj=obj, name=attribute)
        if kind is LoopContext and attribute in _OF_LOOPS:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Do what the sandbox does, at once for what a dict holds."""
        if type(obj) is dict and type(argument) is str and argument not in _OF_DICTS:
            try:
                return obj[argument]
            except KeyError:
                return self.undefined(obj=obj, name=argument)
        return super().getitem(obj, argument)

    @property
    def tick(self) -> bool:
        """Count a turn of a loop: compiled into each of them."""
        self.budget.steps -= 1
        if self.budget.steps < 0:
            raise ExhaustedError
        return True

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call what a template calls, a method of a text or list within bounds."""
        method = getattr(obj, "__wrapped__", obj)
        subject = getattr(method, "__self__", None)
        if isinstance(subject, (str, bytes, int, list, tuple, dict)):
            name = method.__name__
            if name == "join" and args:
                args = (self.budget.take_joined(args[0], str(subject)), *args[1:])
            self.budget.take_call(name, subject, [*args, *kwargs.values()])
        else:
            self.budget.step(CALL)
        found = super().call(context, obj, *args, **kwargs)
        self.budget.take_value(found)
        return found

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Calculate, if the result is not too large."""
        self.budget.take_operation(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        """Refuse an attribute that leads out of the sandbox."""
        raise SecurityError(f"{type(obj).__name__}.{attribute}")

    def _joined(self, *parts: Any) -> str:
        """Do what `a ~ b` does."""
        text = self.budget.joined(parts)
        return "".join(map(str, self.budget.take_joined(parts))) if text is None else text

    def _counted(self, value: Any) -> Any:
        """Return a value that was made, or will be searched, after counting it."""
        self.budget.take_value(value)
        return value

    def _finalize(self, value: Any) -> Any:
        if not isinstance(value, str):
            self.budget.take_text_of(value)
        return value

    def _concat(self, parts: Iterable[str]) -> str:
        return "".join(self.budget.take_joined(parts))

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        skip = 1 if hasattr(function, "jinja_pass_arg") else 0  # its context comes first

        @wraps(function)
        def bounded(*args: Any, **kwargs: Any) -> Any:
            first, subject, rest = (
                args[:skip],
                args[skip] if len(args) > skip else "",
                args[skip + 1 :],
            )
            if name == "join":
                between = str(rest[0] if rest else kwargs.get("d", ""))
                subject = self.budget.take_joined(subject, between)
            self.budget.take_call(name, subject, [*rest, *kwargs.values()])
            found = function(*first, subject, *rest, **kwargs)
            self.budget.take_value(found)
            return found

        return bounded


class _Bounding(NodeTransformer):
    """Compiles counting into loops, and into operations that a sandbox can't intercept."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - jinja2 names visitors so
        self.generic_visit(node)
        node.body = [nodes.ExprStmt(_tick(node)), *node.body]
        if node.test is not None:
            node.test = nodes.And(_tick(node), node.test, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802
        self.generic_visit(node)
        return _filter(_JOINED, *node.nodes)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filter(_COUNTED, node) if isinstance(node.arg, nodes.Slice) else node

    def visit_Operand(self, node: nodes.Operand) -> nodes.Operand:  # noqa: N802
        self.generic_visit(node)
        if node.op in {"in", "notin"}:
            node.expr = _filter(_COUNTED, node.expr)
        return node


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks what is trained on: it is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Scope:
        """Return what stands between the tags, where variables are its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON as transformers' filter does, which escapes nothing for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(*_: Any) -> None:
    raise TemplateError  # its message may hold the prompt


def _tick(node: nodes.Node) -> nodes.EnvironmentAttribute:
    return nodes.EnvironmentAttribute("tick", lineno=node.lineno)


def _filter(name: str, first: nodes.Expr, *rest: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(first, name, list(rest), [], None, None, lineno=first.lineno)
