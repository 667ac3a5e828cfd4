"""ContentForm: whether a template reads a message's content as parts or as one text."""

from collections.abc import Container
from typing import NamedTuple

from jinja2 import nodes


class ContentForm(NamedTuple):
    """What a template does with content, seen from its source.

    parts  it loops over the parts of content
    texts  it asks whether content is a text, and so can do with either
    """

    parts: bool
    texts: bool


def content_form(tree: nodes.Template) -> ContentForm:
    """Look for loops over `content`, as vLLM's automatic detection does."""
    names = _names_of_content(tree)
    parts = any(_is_content(loop.iter, names) for loop in tree.find_all(nodes.For))
    asked = (test.node for test in tree.find_all(nodes.Test) if test.name == "string")
    return ContentForm(parts, any(_is_content(node, names) for node in asked))


def _names_of_content(tree: nodes.Template) -> set[str]:
    """Return the variables that content is put into; a macro's argument may be called so, too."""
    names = {"content"}
    assigned = [(a.target, a.node) for a in tree.find_all(nodes.Assign)]
    before = 0
    while len(names) > before:
        before = len(names)
        for target, value in assigned:
            if isinstance(target, nodes.Name) and _is_content(value, names):
                names.add(target.name)
    return names


def _is_content(node: nodes.Node, names: Container[str]) -> bool:
    """Tell whether an expression is a message's content, or some of its parts."""
    if isinstance(node, nodes.Filter):
        return node.node is not None and _is_content(node.node, names)
    if isinstance(node, nodes.Name):
        return node.name in names
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, nodes.Getitem):
        if isinstance(node.arg, nodes.Slice):
            return _is_content(node.node, names)
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    return False
