"""Chat templates: messages to the text that an engine would see.

budget         steps and characters that a rendering may take
environment    jinja2 as engines set it up, within that budget
strings        a change made to every text of a chat
media          markers for images and sounds, and their token ids
protect        control tokens that a user wrote out, kept as text
content_form   whether a template reads content as parts
messages       messages in the shape that engines hand to templates
chat_template  ChatTemplate
find           find_template: a vocabulary's own template, a file, or a built-in one

Built in, as `<name>.jinja`: chatml, llama3, mistral, deepseek and plain.
"""

from pipeline.templates.chat_template import ChatTemplate
from pipeline.templates.find import BUILT_IN, find_template
from pipeline.templates.protect import protect

__all__ = ["BUILT_IN", "ChatTemplate", "find_template", "protect"]
