"""About how much memory a request takes on its way."""

from pipeline.logs.records import Blocks, Chat, LogRecord, Prompt


def size_of(record: LogRecord) -> int:
    """Return about how many characters a request takes: its prompt and its answer."""
    return _of_prompt(record.prompt) + len(record.answer or ()) + len(record.output_ids or ())


def _of_prompt(prompt: Prompt | None) -> int:
    """Return about how many characters a prompt takes."""
    if isinstance(prompt, Blocks):
        return 64 + 8 * len(prompt.ids)
    if isinstance(prompt, Chat):
        return 64 + sum(_of_content(message.get("content")) for message in prompt.messages)
    return 64 + len(prompt or ())


def _of_content(content: object) -> int:
    if isinstance(content, str):
        return len(content)
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return 1000 + sum(len(text) for text in texts if isinstance(text, str))
