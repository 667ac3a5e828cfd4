"""The phrases that day1's prompts are put together from."""

Words = dict[str, str | tuple[str, ...]]  # phrases by slot, divided by bars where not a tuple

# A <slot> is filled from the list of that name, a <Slot> so that it starts with a capital letter.
# A session draws its own few FACTS: a conversation keeps to its places, things and numbers.
FACTS = {"item": 4, "party": 2, "place": 3, "day": 2, "n": 6, "name": 1, "fn": 3, "ob": 3}
SHARED: Words = {
    "place": "Bergen|Lyon|Porto|Graz|Aarhus|Leeds|Turku|Gdańsk|Zürich|Málaga|Utrecht|Cork",
    "day": "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday",
    "n": "3|5|7|10|12|14|18|20|21|30|36|45|60|90",
    "party": "Supplier|Customer|Contractor|Licensor|Operator|Principal",
    "name": "Zoë Marsh|Łukasz Wrona|Ines Duarte|Tom Birk|Amara Obi|Jonas Feld|Mei Tan|Petra Holm",
    "fn": "parse|merge|count|load|filter|group|rank|flush|verify|resolve",
    "ob": "order|ticket|session|token|event|price|chunk|account|upload|region",
    "rule": """If <e>, <a>, because <r>.|When <e>, first <a>; then <a>.|<A> whenever <e>.|Unless
        <e>, there is no need to <a>.|Keep in mind that <r>; so if <e>, <a>.|Do not <a> before it
        is clear whether <e>.|It may be that <f>; in that case <a>.|<R>, which is why you <a>.""",
    "ask": """Is it still right to <a> if <e>?|I tried to <a>, but <f>.|Could you explain why <f>?|
        Do I have to <a> when <e>?|We noticed on <day> that <f>.|What happens if <e>, given that
        <r>?|Somebody told me that <r>. Is that so?|Last <day> <f>, and now <e>. What next?""",
    "answer": """It looks as if <f>, and <r>.|Please <a>, then <a>.|If <e>, <a>.|In short: <f>, so
        <a>.|I would <a> first, because <r>.|As far as I can see, <f>; once that is settled, <a>.|
        Note that <r>, even if <e>.|There are two ways from here: either <a>, or <a>.""",
}
CODE_BLOCKS = (
    '''```python
def <fn>_<ob>s(rows: Iterable[Row], limit: int = <n>) -> dict[str, int]:
    """<Fn> the <ob>s of one batch, at most `limit` of them."""
    counts: dict[str, int] = {}
    for number, row in enumerate(rows):
        if number == limit:
            break
        counts[row.<ob>] = counts.get(row.<ob>, 0) + 1
    return counts
```''',
    """```
  File "/srv/app/<fn>_<ob>s.py", line <n>, in <fn>_<ob>s
    return self.<ob>s[key].<fn>(timeout=<n>)
KeyError: '<ref>'
```""",
)
SQL_BLOCKS = (
    """```sql
with recent as (
  select region, account_id, amount from <ob>s where day >= current_date - <n>
)
select region, count(distinct account_id) as accounts, sum(amount) as total
from recent group by region having count(*) > <n> order by total desc;
```""",
)
SUPPORT: Words = {
    "review": """I ordered the <item> from <place> and <f>.|On <day> I was told that <r>.|In the
        meantime <f>.|The <item> itself is good, but <e>.|They asked me to <a>.""",
    "item": """oak shelf|reading lamp|garden bench|wool rug|folding desk|bread oven|corner sofa|
        coffee grinder|linen curtain|tool chest|picture frame|bunk bed""",
    "e": """the <item> arrives with a cracked corner|the parcel has not moved since <day>|the
        courier marks the <item> as delivered although nobody was at home|the refund for order
        <ref> is older than <n> working days|two vouchers are entered for one basket|the <item> is
        out of stock in <place> until <day>|a part is missing from the box""",
    "a": """check the order history before anything is promised|ask for a photo of the label and of
        the damaged side|book a collection in <place> for <day> morning|hand the case to the team
        in <place>|send a new <item> from the depot in <place>|write the number <ref> into the
        subject of the ticket|offer store credit of <n> percent as a gesture of goodwill|confirm
        the delivery address and the telephone number once more|cancel the second charge""",
    "r": """the carrier accepts claims for <n> days only|gift cards are not paid out in cash|the
        depot in <place> does not work on weekends|the card provider needs up to <n> days to
        release a charge|the warranty on the <item> covers the frame but not the surface|returns
        without a label cannot be matched to an order""",
    "f": """the <item> was scanned twice at the depot in <place>|the label on the box carried an
        old address|the pick-up in <place> was moved to <day>|order <ref> was split into two parcels
        on <day>|nobody answered the telephone when the driver called|the money was sent back to a
        card that had expired|the assembly sheet for the <item> belonged to an older model""",
}
CODING: Words = {
    "code": CODE_BLOCKS,
    "log": "INFO <f>|WARN <f>|INFO <f>, <f>|ERROR <f>|INFO <f>",
    "item": """order cache|retry queue|config loader|session store|upload worker|report parser|
        price index|token counter|job planner|event stream|mail sender|access log""",
    "e": """the <item> starts before its configuration is loaded|two threads write to the <item> at
        the same moment|the list grows past <n> thousand rows|the test passes alone but fails with
        the rest of the suite|a timeout is raised while the lock is still held|the type checker
        complains about an optional value in `<fn>_<ob>s`|the <item> gets the same message twice""",
    "a": """move the lock into the <item> and keep it out of the callers|write a small test for
        `<fn>_<ob>s` that fails before the change|pass the clock in as an argument instead of
        reading it inside|replace the nested loops by one pass over a dictionary|log the key and
        the size but never the content|split `<fn>_<ob>s` into a part that decides and a part that
        writes|use a context manager so that the file is closed in every case|limit the retries to
        <n> and wait longer after each of them""",
    "r": """dictionaries keep the order of insertion|a generator can be consumed only once|default
        arguments are evaluated when the function is defined|an exception in a thread does not stop
        the main program|the <item> is shared by all requests of one process""",
    "f": """the <item> held a stale entry for <n> minutes|the loop skipped the last row when the
        file had no newline|the exception was swallowed by a bare except clause|the counter in the
        <item> was updated outside of the lock|`<fn>_<ob>s` changed the list that it was iterating
        over|the retry ran <n> times although the first call had succeeded""",
}
LEGAL: Words = {
    "item": """Services|Deliverables|Licensed Programs|Work Results|Spare Parts|Training Materials|
        Test Systems|Custom Modules|Measuring Devices|Periodic Reports""",
    "e": """the <party> fails to meet an agreed service level in <n> consecutive months|a defect in
        the <item> is reported after acceptance|an invoice is disputed in good faith|the <item> are
        delivered later than the agreed date|a third party claims that the <item> infringe its
        rights|the <party> becomes insolvent or suspends its payments|an event beyond reasonable
        control lasts longer than <n> days|the <party> assigns this agreement without the consent
        of the other side|personal data are processed outside of the agreed territory|the <item>
        are used for a purpose which this agreement does not name""",
    "a": """give written notice to the registered office in <place>|remedy the breach at own cost|
        provide a plan that states causes, measures and dates|return or destroy all copies of the
        <item>|pay the undisputed part of the invoice|keep records of the <item> and make them
        available for inspection|hold the other party harmless from the resulting claims|grant
        access to the <item> during normal business hours|maintain insurance cover of not less than
        <n> hundred thousand euros|suspend the <item> only after a reminder has been sent|submit
        the matter to the steering committee in <place>""",
    "r": """the limitation of liability in clause <n> applies|silence does not count as consent|the
        remedies in this clause are cumulative and not exclusive|the obligation survives the end of
        this agreement|a waiver is valid only in writing|the courts of <place> have exclusive
        jurisdiction|the schedules prevail over the general terms|the <party> may rely on the last
        version that was signed|interest accrues at <n> percent above the base rate""",
    "f": """the notice was sent to an address that was no longer valid|the acceptance protocol for
        the <item> was never signed|the <party> had approved the change by electronic mail|the
        certificate expired <n> days before the incident|the <party> had disputed the invoice for
        the <item> within the period|the audit in <place> found records that were incomplete""",
    "clause": """Where <e>, the <party> shall <a> within <n> days, provided that <r>.|If <e>, the
        <party> may <a>; in addition, the <party> shall <a>.|The <party> shall <a> and, on request,
        <a>.|The parties agree that <r>, even where <e>.|The <party> is not in breach merely
        because <e>, as long as <r>.|Before signature <f>; accordingly the <party> undertakes to
        <a>.|<R>; where <e>, however, the <party> is released from the duty to <a>.""",
}
ANALYTICS: Words = {
    "code": SQL_BLOCKS,
    "item": """weekly revenue|churn rate|basket size|delivery delay|support load|conversion rate|
        stock turnover|refund share""",
    "e": """the <item> of one region is missing for <n> days|the <item> in <place> moves by more
        than <n> percent|the question names a period that is not yet closed|two tables disagree
        about the <item>|the sample has fewer than <n> rows""",
    "a": """compare the <item> with the same week of last year|leave out accounts that were opened
        after <day>|show the <item> by region, largest on top|report the median next to the mean|
        join `<ob>s` on the account and not on the mail address|draw the <item> as a line""",
    "r": """the <item> is counted in the time zone of <place>|late orders arrive up to <n> days
        later|refunds are booked on the day of the order and not of the payment|the <item> includes
        orders that were cancelled within <n> minutes""",
    "f": """the <item> fell by <n> percent after the price change in <place>|the export of <day>
        contained every row twice|the new `<ob>` field was empty for the first <n> days|the <item>
        rose in every region except <place>""",
}
SECTIONS = """Scope|Tone|Before you answer|Escalation|Privacy|Records|Frequent cases|Limits|
    Things to avoid|Wording|Dates and amounts|When you are not sure|Closing|From practice"""
TAGS = ("delivery", "damage", "refund", "praise", "stock")
TOOLS = {  # name: description, required argument, how the agent fills it in
    "search_logs": ("Find the log lines of a service in the last minutes", "service", "<item>"),
    "read_runbook": ("Read the runbook page of a service", "service", "<item>"),
    "read_file": ("Read a source file of the deployed build", "path", "<fn>_<ob>s.py"),
    "get_metric": ("Read the load of a service, one point a minute", "service", "<item>"),
    "add_note": ("Append a note to the incident", "text", "<F>."),
}
