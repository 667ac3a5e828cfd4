"""Request logs to request records.

    records    LogRecord, what every family makes of a line; LogFamily, the table each fills
    fields     what stands in a log's fields, checked
    streams    a log's bytes: files, standard input, compression, limits
    lines      bytes to lines
    objects    a line to JSON objects, strictly or leniently
    arrays     JSON arrays, and objects over several lines, cut into items
    pickles    pickles, of which only data is read
    documents  logs that aren't lines: JSON arrays, CSV, Parquet, pickles
    reprs      Python reprs in text logs, never evaluated
    sglang     SGLang's request objects, which its logs, metrics and dumps hold
    bodies     request and response bodies that several families hold
    clocks     times that a format gives a meaning to
    kept       what earlier lines said, kept within bounds
    messages   messages of other APIs to OpenAI's; Anthropic's
    items      items of the Responses API to messages
    otlp       OpenTelemetry's spans and events
    genai      what its GenAI attributes and events say of a prompt
    cuts       what stands before a logger's cut
    envelopes  what gateways log around a body
    turns      conversations to the requests they were made of
    families   one module a log family; it joins by being there
    reading    read_log: what each line of a file gives

Adding a family is a module in `families` with a FAMILY, and its example in tests/examples.
"""
