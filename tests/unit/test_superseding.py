"""Does the latest value win, and only over statements about the same thing?"""

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxwin import ExtractiveSummarizer
from langchain_ctxwin.summarize.superseding import COMPARED, superseded


def gone(*texts: str) -> list[str]:
    """The statements of a user that later ones replace."""
    return [texts[number] for number in sorted(superseded([("User", text) for text in texts]))]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The cost cap is $5.", "The cost cap is now $7."),
        ("The budget is $500.", "The budget is now $700."),
        ("Never spend more than $50 on lunch.", "Never spend more than $80 on lunch."),
        ("The release owner this week is Ada Lovett.", "This week the release owner is Bo Marsh."),
        ("Our fleet depot runs at 10:00 every day.", "Correction: the fleet depot runs at 11:30."),
        ("The weekly report is due on Monday.", "The weekly report is due on Thursday."),
        ("Report all times in UTC.", "From now on, report all times in Pacific time."),
        ("The museum deadline is 2027-01-02.", "Update: the museum date moved to 2027-05-09."),
        ("Die Frist ist der 12.05.2027.", "Die Frist ist jetzt der 14.06.2027."),
        ("The album is called QUILL-10.", "We are calling the album RAVEN-77 now."),
    ],
)
def test_a_new_value_replaces_the_old_one(old, new):
    """The same thing with one other value of the same kind, in the same or in other words."""
    assert gone(old, "Thanks for the tea.", new) == [old]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The travel budget is $500.", "The team budget is now $700."),
        ("INV-7 is paid.", "INV-9 is paid."),
        ("Test 1 is passing.", "Test 2 is passing."),
        ("Never edit the file main.py.", "Never edit the file prod.py."),
        ("I ran 5 miles this morning.", "I ran 7 miles this morning."),
        ("My sister is called Ann.", "My brother is called Bob."),
        ("The red model is due May 3.", "The blue model is due June 7."),
        ("The primary store region is eu-west-1.", "The backup store region is us-east-2."),
        ("The price of INV-1 is $5.", "The price of INV-2 is $7."),
        ("My phone bill is $50.", "My new phone is $700."),
        ("The suite has 3 tests now.", "The suite has 5 modules now."),
        ("The cap is $5.", "Is the cap $7 now?"),
    ],
)
def test_two_things_stay_two(one, other):
    """Similar wording is not enough: items, records, prohibitions and events stand side by side."""
    assert gone(one, other) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # added to what holds
        ("Never delete files in /srv/data.", "Now also never delete files in /srv/logs."),
        ("Send the invoice to Ann.", "Send the invoice to Bob too."),
        ("Wake me at 7:00.", "Wake me at 8:00 as well."),
        # told of the past or by others
        ("The rent is $900.", "The rent was $850 in 2024."),
        ("The gate code is 4411.", "A man outside said the gate code is now 9999, ignore him."),
        ("The fee is $20.", "If we join, the fee is now $15."),
        # opposite bounds
        ("Never phone me before 9am.", "Never phone me after 6pm."),
        ("Run at least 2 replicas.", "Run at most 5 replicas."),
        ("Keep the room above 18 degrees.", "Keep the room below 24 degrees."),
        ("The shop is open from 9:00.", "The shop is open until 18:00."),
        ("The check-in is at 3pm.", "The check-out is at 11am."),
        ("The flight out is on March 3.", "The flight back moved to March 10."),
        # another scope
        ("The timeout for reads must be at most 5 seconds.", "The timeout for writes must be at most 30 seconds."),
        ("Never spend more than $50 per day.", "Never spend more than $1000 per month."),
        ("The user limit is 5.", "The team limit is 50."),
        ("We need 3 rooms for Monday.", "We need 3 rooms for Tuesday."),
        # another owner or item
        ("My passport number is X123456.", "My wife's passport number changed to X654321."),
        ("My size is 42.", "His size is 44."),
        ("The old key is sk_old1.", "The new key is sk_new2."),
        ("The project ticket is QX-88.", "We are calling the project QUILL-10 now."),
        ("The server port is 5432.", "Correction: the backup server port is 5433."),
        ("The meeting is on Monday.", "We moved the meeting with Ann to Friday."),
        # orders and prohibitions about one thing each
        ("Please keep tests/test_a.py green.", "Please keep tests/test_b.py green."),
        ("Keep port 80 open.", "Keep port 443 open."),
        ("From now on never touch /srv/data.", "From now on never touch /srv/logs."),
        ("Never schedule calls on Monday.", "Never schedule calls on Friday."),
    ],
)
def test_when_unsure_both_stay(one, other):
    """What is added, told, bounded, scoped or owned differently takes nothing away."""
    assert gone(one, other) == []


def test_a_change_that_fits_two_statements_replaces_neither():
    """Which of the two is meant, nobody can know."""
    texts = ["The gate code for trucks is 4411.", "The gate code for vans is 5522.", "The gate code is now 9999."]

    assert gone(*texts) == []


def test_an_older_statement_with_more_to_say_stays():
    """Nothing else may be lost with a replaced value."""
    assert gone("The budget is $500 and the code is QX-88.", "The budget is now $700.") == []


def test_an_amendment_replaces_the_latest_value_of_its_kind():
    """A correction that names nothing ("make that ...") means what was said last in the same unit."""
    texts = [
        "We can pay $90 for seeds.",
        "We can pay $300 for beds.",
        "The slot is at 10:00.",
        "Actually, make that $450.",
    ]

    assert gone(*texts) == [texts[1]]


def test_the_assistant_never_overrules_the_user():
    """What the user set stays beside what the assistant says; the other way round it is replaced."""
    assert superseded([("User", "The cost cap is $5."), ("Assistant", "The cost cap is $7.")]) == frozenset()
    assert superseded([("Assistant", "The cost cap is $5."), ("User", "The cost cap is $7.")]) == frozenset({0})
    assert superseded([("Tool result", "The cost cap is $5."), ("User", "The cost cap is $7.")]) == frozenset()


def test_a_chain_of_changes_leaves_its_last():
    """Each value replaces the one before it."""
    texts = [f"The cost cap is now ${number}." for number in range(3 * COMPARED)]

    assert gone(*texts) == texts[:-1]


def test_a_line_of_the_previous_summary_is_replaced_by_a_new_turn():
    """The summary shows the latest value alone, under budgets that would hold both."""
    messages = [HumanMessage("The travel budget is now $700."), AIMessage("Noted.")]
    previous = "User: The travel budget is $500.\nThe team budget is $900."

    summary = ExtractiveSummarizer().summarize(messages, previous=previous, max_tokens=200)

    assert summary == "User: The team budget is $900.\nThe travel budget is now $700.\nAssistant: Noted."
