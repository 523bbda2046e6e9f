"""Are long texts shown by their most telling statements, verbatim, in order, with a true count of the others?"""

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin.text.sentences import sentence_spans, statement_spans
from langchain_ctxwin.tool_results.extraction import (
    EXAMINED_CHARS,
    GAP,
    MIN_CHARS,
    NO_WORDS,
    Words,
    extract,
    query_words,
)

FERRY = (
    "The Northwind ferry was built in 1974 at a yard in Bergen. It carried cars and passengers for thirty years. "
    "The crew knew every rock along the route. In winter it sometimes stayed in port for days. "
    "The captain, Ms. Halvorsen, liked the old engine. Her successor changed the timetable. "
    "Refunds are paid within two weeks when a crossing is cancelled. Pets travel free of charge. "
    "A café on the upper deck served waffles. The ferry can be visited on Sundays."
)
TELLING = {
    "contract": (
        (
            "This Agreement is made between the parties. The supplier shall deliver the goods in accordance with "
            "the schedule attached. Deliveries are made on weekdays between 8 and 17. The supplier may assign "
            "its rights. In no event shall the supplier's liability exceed the fees paid in the preceding twelve "
            "months. The customer may terminate this agreement with ninety days of written notice. Invoices are "
            "payable within 30 days. Interest accrues at 1.5 % per month on late payments. This agreement is "
            "governed by the laws of Ohio. Notices are sent to the registered office. No waiver is effective "
            "unless in writing. The parties may amend this Agreement at any time by mutual consent."
        ),
        "How can we cancel the contract?",
        "with ninety days of written notice",
        220,
    ),
    "incident": (
        (
            "On Monday the team met as usual. Traffic was normal in the morning. At 14:02 UTC alerts fired for "
            "elevated latency in the checkout service. Engineers looked at dashboards. Several theories were "
            "considered. The root cause was a misconfigured connection pool introduced in release 4.18.2. A "
            "rollback was started at 14:31. Customers saw errors for 29 minutes. Lunch was served late. The team "
            "will add a canary stage. Everybody was thanked for their work."
        ),
        "why did the checkout fail?",
        "The root cause was a misconfigured connection pool",
        200,
    ),
    "allergy": (
        (
            "The restaurant has a lovely terrace. The menu changes weekly. Reservations are recommended. Dogs "
            "are welcome. The kitchen does not serve peanuts. The desserts are wonderful. Staff are friendly. "
            "Parking is available nearby. It opened in 1998. The chef trained in Lyon. We had soup. Then we had "
            "fish. Overall it is worth a visit."
        ),
        "is it safe with a nut allergy?",
        "does not serve peanuts",
        130,
    ),
    "e-mail": (
        (
            "Hi Sam, hope you had a great weekend! It was lovely to see you at the fair. The weather was "
            "terrible, as always. Anyway, about the invoice: please hold payment until legal has signed off. "
            "Also, the new address is 12 Elm Street. My kids say hi. Talk soon! Best, Ann"
        ),
        "",
        "please hold payment until legal has signed off",
        130,
    ),
    "biography": (
        (
            "Marie Curie was born in Warsaw. She loved the countryside. Her father taught physics. She moved to "
            "Paris in 1891. She worked hard. She discovered polonium and radium with her husband Pierre. She "
            "received two Nobel Prizes. She walked a lot. She died of aplastic anaemia. Her notebooks are still "
            "radioactive."
        ),
        "cause of death",
        "She died of aplastic anaemia",
        120,
    ),
    "Japanese": (
        (
            "会議は午前九時に始まりました。議長が全員を歓迎しました。コーヒーが出ました。"
            "返品は三十日以内に受け付けます。その後、天気について話しました。家賃は一月から上がります。"
            "皆さん満足でした。会議は早く終わりました。夕食会がありました。写真を撮りました。"
            "報告書は期限までに提出してください。"
        ),
        "返品の期限は?",
        "返品は三十日以内に受け付けます",
        80,
    ),
    "passport": (
        (
            "Welcome to the consular information page. Our building is a short walk from the cathedral. Visitors "
            "enjoy the small garden in the courtyard. Applications are received at counter four. A passport must "
            "be valid for six months beyond the date of departure. The waiting room has a water cooler. "
            "Photographs can be taken on the second floor. Many travellers combine their trip with a visit to "
            "the coast. The staff speak five languages. We wish you a pleasant stay."
        ),
        "Can I travel if my passport expires in March?",
        "must be valid for six months",
        200,
    ),
    "heating": (
        (
            "The boiler was inspected by our technician this morning. He arrived on time and parked in the yard. "
            "The casing is clean and was dusted last year. Pressure reads 1.4 bar. The pump is of the usual "
            "kind. The burner shuts down because the flame sensor is covered with soot. A neighbour came to say "
            "hello. The radiators upstairs were painted white. We would be happy to visit again. Kind regards "
            "from the whole workshop."
        ),
        "Why is there no hot water?",
        "because the flame sensor is covered with soot",
        200,
    ),
    "school": (
        (
            "Dear parents, the autumn has been a busy time for all of us. The choir sang beautifully at the "
            "harvest feast. New curtains were hung in the library. The football team won two matches. Consent "
            "forms for the ski trip are due on Friday. The caretaker has planted tulips. Thank you to everybody "
            "who baked. The cafeteria tried a new soup recipe. A lost scarf is at reception. With warm wishes, "
            "the headmistress."
        ),
        "",
        "Consent forms for the ski trip are due on Friday",
        200,
    ),
    "minutes": (
        (
            "The board gathered in the large hall. Coffee and cake were served by the interns. The chair "
            "welcomed the new members. A film about the history of the association was shown. The treasurer "
            "thanked all donors. The total deficit is covered by a loan from the city. The choir rehearses next "
            "door. Several members admired the new carpet. The projector hummed softly. A group picture was "
            "taken. The meeting ended with applause."
        ),
        "",
        "The total deficit is covered by a loan from the city",
        200,
    ),
    "Spanish": (
        (
            "Buenos días, espero que se encuentre bien. El edificio tiene una fachada muy bonita. El jardín se "
            "riega por la mañana. Los vecinos organizaron una fiesta en la terraza. No se permiten animales en "
            "el apartamento. La portera conoce a todo el mundo. Las ventanas dan a la plaza. Hay una panadería "
            "excelente en la esquina. El barrio es tranquilo y agradable. Quedo a su disposición para cualquier "
            "consulta. Reciba un cordial saludo."
        ),
        "¿Puedo traer a mi perro?",
        "No se permiten animales en el apartamento",
        200,
    ),
    "French": (
        (
            "Chers voyageurs, la gare a été rénovée cette année. Le hall est lumineux et spacieux. Un piano est "
            "à la disposition de chacun. Les cafés ouvrent tôt le matin. Le train de Lyon est supprimé en raison "
            "d'une panne de signalisation. Une exposition de photographies orne le quai. Le personnel porte un "
            "nouvel uniforme. Les fauteuils sont confortables. La librairie propose des romans. Nous vous "
            "souhaitons une agréable journée."
        ),
        "Pourquoi mon train ne part-il pas ?",
        "en raison d'une panne de signalisation",
        200,
    ),
    "German": (
        (
            "Sehr geehrte Frau Lindner, vielen Dank für Ihr Schreiben. Unser Haus blickt auf eine lange "
            "Geschichte zurück. Das Sommerfest war wieder gut besucht. Die neuen Räume sind hell und freundlich. "
            "Schäden durch Hochwasser sind nicht versichert. Unsere Kantine kocht jetzt regional. Viele "
            "Mitarbeiter kommen mit dem Fahrrad. Der Kalender für das nächste Jahr liegt bei. Wir freuen uns "
            "über Ihr Vertrauen. Mit freundlichen Grüßen aus Kassel."
        ),
        "Zahlen Sie, wenn der Keller überschwemmt wird?",
        "Schäden durch Hochwasser sind nicht versichert",
        200,
    ),
    "Portuguese": (
        (
            "Bom dia a todos. A equipa chegou cedo à obra. O café estava muito bom. As janelas novas já foram "
            "montadas no primeiro andar. O telhado deve estar pronto antes do fim de outubro. O cão do vizinho "
            "brincou no pátio. As paredes foram pintadas de azul. O arquiteto tirou muitas fotografias. A vista "
            "para o rio é linda. Houve música durante o almoço. Até breve e bom trabalho."
        ),
        "Quando acaba a obra do telhado?",
        "O telhado deve estar pronto antes do fim de outubro",
        200,
    ),
    "Chinese": (
        (
            "各位同事大家好。公司年会在酒店举行。现场布置得非常漂亮。乐队演奏了许多歌曲。晚餐有很多地方特色菜。"
            "服务器机房禁止携带液体进入。摄影师为大家拍了合影。抽奖环节气氛热烈。新来的同事表演了魔术。"
            "天气也十分晴朗。感谢大家一年来的努力。祝大家新年快乐。"
        ),
        "我可以带咖啡进去吗?",
        "服务器机房禁止携带液体进入",
        80,
    ),
}
WORD = st.text(alphabet="abcdefgh", min_size=1, max_size=8)
SENTENCES = st.lists(WORD, min_size=1, max_size=12).map(lambda words: " ".join(words).capitalize() + ".")
PROSE = st.lists(SENTENCES, min_size=1, max_size=40).map(" ".join)
PIECES = st.sampled_from(
    [
        *("word ", "A sentence. ", "Is it 5? ", "\n", "\n\n", "# Title\n", "a" * 300, " " * 30, "你好。", "ภาษาไทย "),
        *(
            "جملة عربية؟ ",
            "हिन्दी वाक्य। ",
            "\r\n",
            "e\u0301",
            "\ud83d\ude00",
            "\ud800",
            "\x00",
            "\u2028",
            "\u00a0",
            "{",
            "--",
        ),
    ]
)
ANY_TEXT = st.one_of(st.lists(PIECES, max_size=120).map("".join), st.text(max_size=400), PROSE)
ANY_WORDS = st.builds(
    Words,
    query=st.lists(st.one_of(WORD, st.text(max_size=4))).map(query_words),
    keywords=st.frozensets(st.text(max_size=5), max_size=3),
)


def asked(question):
    return Words(query=query_words([question]))


def parts(extracted):
    """The shown pieces, how many are left out, and of what."""
    body, count, unit = re.fullmatch(r"(?s)(.*) \.\.\. \[([\d,]+) more (words|characters)\]", extracted).groups()
    return body.removeprefix(GAP.lstrip()).split(GAP), int(count.replace(",", "")), unit


@given(ANY_TEXT, st.integers(-1, 300), ANY_WORDS)
def test_the_limit_holds_for_any_text(text, max_chars, words):
    """Nothing exceeds the limit, nothing raises, and the same text gives the same extract."""
    extracted = extract(text, max_chars, words)

    assert len(extracted) <= max(0, max_chars)
    assert extracted == extract(text, max_chars, words)


@given(ANY_TEXT, st.integers(0, 300))
def test_a_text_that_fits_is_unchanged(text, spare_chars):
    """There is nothing to leave out."""
    assert extract(text, len(text) + spare_chars) is text


@given(PROSE, st.integers(MIN_CHARS, 400), ANY_WORDS)
def test_pieces_are_verbatim_and_the_count_is_true(text, max_chars, words):
    """The pieces stand in the text in this order, and with the words left out they are all words."""
    if len(text) <= max_chars:
        return
    shown, left_out, unit = parts(extract(text, max_chars, words))

    at = 0
    for piece in shown:
        at = text.index(piece, at) + len(piece)
    assert unit == "words"
    assert sum(len(piece.split()) for piece in shown) + left_out == len(text.split())


@given(PROSE, st.integers(200, 400), ANY_WORDS)
def test_statements_are_whole(text, max_chars, words):
    """No sentence that fits is cut."""
    if len(text) <= max_chars:
        return
    whole = {text[a:b].strip() for a, b in statement_spans(text, 0, len(text))}
    shown, _, _ = parts(extract(text, max_chars, words))

    said = [piece[a:b].strip() for piece in shown for a, b in sentence_spans(piece, 0, len(piece))]
    assert set(said) <= whole


@given(ANY_TEXT)
def test_statements_are_all_of_the_text(text):
    """Spans follow each other from the beginning to the end."""
    for spans in (statement_spans(text, 0, len(text)), sentence_spans(text, 0, len(text))):
        found = list(spans)
        assert "".join(text[start:stop] for start, stop in found) == text
        assert all(start < stop for start, stop in found)


def test_the_first_statement_is_shown_without_a_question():
    """By itself a text is told by its first sentence, its figures and its last sentence."""
    assert extract(FERRY, 150) == (
        "The Northwind ferry was built in 1974 at a yard in Bergen. … The ferry can be visited on Sundays."
        " ... [62 more words]"
    )


def test_a_question_brings_its_answer():
    """The sentence with the words of the question is shown, whatever their endings."""
    shown, _, _ = parts(extract(FERRY, 180, asked("Do I get a refund if the crossing gets cancelled?")))

    assert "Refunds are paid within two weeks when a crossing is cancelled." in shown


@pytest.mark.parametrize(("text", "question", "answer", "max_chars"), TELLING.values(), ids=TELLING)
def test_the_answer_is_shown_also_when_other_words_ask_for_it(text, question, answer, max_chars):
    """A rule, a cause, a failure, a request or a sum is shown before small talk."""
    assert answer in extract(text, max_chars, asked(question))


def test_what_says_nothing_does_not_fill_the_room_of_what_says_much():
    """When a telling sentence does not fit, a plain one that is short enough does not take its place."""
    text = (
        "Nobody had heard the alarm. We sing. The pump was broken for a week and it was loud. Cats sleep. "
        "It stopped because the fuse of the old engine was wet and cold. Dogs bark. Good night."
    )

    assert extract(text, 105) == "… The pump was broken for a week and it was loud. … Good night. ... [24 more words]"


def test_a_cue_that_is_everywhere_says_nothing():
    """Where all lines fail, the first one is shown by its place."""
    text = "Nobody came at all. " + "".join(f"The {name} failed. " for name in ("pump", "fan", "lamp", "valve", "bell"))

    assert extract(text, 65).startswith("Nobody came at all.")


def test_a_configured_keyword_counts():
    """A sentence with a keyword comes before those without."""
    extracted = extract(FERRY, 160, Words(keywords=frozenset({"pets"})))

    assert "Pets travel free of charge." in extracted


def test_a_query_word_counts_more_than_a_keyword():
    """What is asked now comes before what is wanted always."""
    words = Words(query=query_words(["waffles"]), keywords=frozenset({"pets"}))

    assert extract(FERRY, 85, words) == "… A café on the upper deck served waffles. ... [73 more words]"


def test_blank_words_are_none():
    """Keywords come from a file that anybody wrote."""
    assert extract(FERRY, 150, Words(query=frozenset({"", " "}), keywords=frozenset({"\n", ""}))) == extract(FERRY, 150)


def test_a_word_that_is_everywhere_says_little():
    """The rare word of a question decides."""
    islands = (
        "Arholma",
        "Blido",
        "Galno",
        "Husaro",
        "Ingmarso",
        "Ljustero",
        "Moja",
        "Namdo",
        "Ostana",
        "Sandon",
        "Uto",
    )
    text = " ".join(f"The ferry passed the island of {name}." for name in islands) + " Furusund is closed. Good night."

    assert "Furusund is closed." in extract(text, 110, asked("Has the ferry passed the island of Furusund?"))


def test_figures_count():
    """Of two sentences that say as much, the one with an amount or an identifier is shown."""
    text = f"The order is here. {'Nothing is known. ' * 5}Invoice INV-77 is for $1,200. It rains. Good night."

    assert "Invoice INV-77 is for $1,200." in extract(text, 110)


def test_the_odd_line_of_a_log_is_shown():
    """Lines that repeat each other but for their numbers say little."""
    lines = [f"2024-01-02 10:00:{second:02} INFO worker {second} heartbeat" for second in range(60)]
    lines[41] = "2024-01-02 10:00:41 ERROR disk full on /dev/sda1"

    assert lines[41] in extract("\n".join(lines), 250)


def test_a_text_that_repeats_itself_is_shown_once():
    """The same sentence again says nothing."""
    assert extract("All is well here. " * 40, 100) == "All is well here. ... [156 more words]"


def test_rows_stay_whole():
    """A row of a table is a statement."""
    rows = [f"{number},customer {number},{number * 3}.50" for number in range(10, 60)]

    shown, left_out, unit = parts(extract("\n".join(rows), 200, asked("customer 44")))

    assert {row for piece in shown for row in piece.split("\n")} <= set(rows)
    assert rows[34] in shown
    assert (left_out, unit) == (2 * (50 - sum(piece.count("\n") + 1 for piece in shown)), "words")


def test_markdown_is_told_by_lines():
    """Headings and items are statements of their own."""
    text = f"# Guide\n\n- Install it.\n- Run it.\n\n## Limits\n\n{'Plain words here. ' * 10}\n\n- At most 40 calls.\n"

    shown, _, _ = parts(extract(text, 100, asked("limit of calls")))

    assert shown == ["# Guide\n\n- Install it.\n- Run it.\n\n## Limits", "- At most 40 calls."]


def test_wrapped_lines_are_one_sentence():
    """A line break in the middle of a sentence does not end it."""
    text = (
        "The harbour was closed for the whole of the winter because\nthe ice was too thick for the old ferry, which had"
        " been\nbuilt for warmer waters. Nobody minded.\nThe islanders walked over the ice to the shops instead, and\n"
        "came back in the evening.\n"
    )

    assert extract(text, 130, asked("islanders")) == (
        "… The islanders walked over the ice to the shops instead, and\ncame back in the evening. ... [29 more words]"
    )


@pytest.mark.parametrize(
    ("sentences", "question", "answer", "unit"),
    [
        (
            [
                "北风号渡轮于多年前建造。",
                "它在两个岛屿之间运送汽车。",
                "船员熟悉每一块礁石。",
                "航班取消时支付退款。",
                "宠物免费乘船。",
            ],
            "退款政策是什么",
            "航班取消时支付退款。",
            "characters",
        ),
        (
            [
                "フェリーは昔に造られました。",
                "島の間で車を運びました。",
                "欠航の場合は返金されます。",
                "ペットは無料で乗れます。",
            ],
            "返金について",
            "欠航の場合は返金されます。",
            "characters",
        ),
        (
            ["เรือเฟอร์รี่สร้างขึ้นที่เมืองเบอร์เกน", "มันขนส่งรถยนต์ระหว่างสองเกาะ", "การคืนเงินจ่ายเมื่อยกเลิกเที่ยวเรือ", "สัตว์เลี้ยงเดินทางฟรี"],
            "ขอคืนเงิน",
            "การคืนเงินจ่ายเมื่อยกเลิกเที่ยวเรือ",
            "characters",
        ),
        (
            [
                "بنيت العبارة قبل سنوات طويلة.",
                "كانت تنقل السيارات بين الجزر.",
                "يدفع المبلغ عند إلغاء الرحلة.",
                "تسافر الحيوانات مجانا.",
            ],
            "إلغاء الرحلة",
            "يدفع المبلغ عند إلغاء الرحلة.",
            "words",
        ),
        (
            [
                "नाव कई साल पहले बनी थी।",
                "वह द्वीपों के बीच चलती थी।",
                "यात्रा रद्द होने पर पैसा वापस मिलता है।",
                "पालतू जानवर मुफ्त हैं।",
            ],
            "पैसा वापस",
            "यात्रा रद्द होने पर पैसा वापस मिलता है।",
            "words",
        ),
    ],
    ids=["Chinese", "Japanese", "Thai", "Arabic", "Hindi"],
)
def test_other_scripts_are_understood(sentences, question, answer, unit):
    """Sentences, questions and counts work without spaces and without capitals."""
    text = " ".join(sentences) + " " + " ".join(sentence * 2 for sentence in sentences)

    shown, _, counted = parts(extract(text, 90, asked(question)))

    assert answer in " ".join(shown)
    assert counted == unit


def test_a_sentence_that_is_too_long_is_cut_at_a_word():
    """Running text is shown in pieces of whole words, those with the words of the question first."""
    text = " ".join(f"word{number}" for number in range(200)) + " the password is swordfish " + "and so on " * 50

    (shown,), _, _ = parts(extract(text, 120, asked("password")))

    assert "password is" in shown
    assert set(shown.split()) <= set(text.split())


def test_encoded_text_is_shown_by_head_and_tail():
    """Text without words is shown by its two ends and the number of characters between them."""
    text = base64.b64encode(bytes(range(256)) * 12).decode()

    head, count, tail = re.fullmatch(r"(.+)… \[([\d,]+) more characters\] …(.+)", extract(text, 100)).groups()

    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + int(count.replace(",", "")) + len(tail) == len(text)


@pytest.mark.parametrize("text", [" " * 500, "\n" * 500, "!" * 500, "-" * 500, "\u00a0" * 500, "\ud800" * 500])
def test_text_without_any_word_is_no_failure(text):
    """Blanks, rules and broken characters have no statements."""
    assert extract(text, 100).count("[4") == 1


def test_white_space_is_not_missed():
    """A text that is long by white space only is complete without it."""
    assert extract("It rains. It snows.\n" + " " * 500, 100) == "It rains. It snows."


def test_very_little_room_is_a_beginning():
    """Below the smallest size a text is simply cut."""
    assert [extract(FERRY, chars) for chars in (0, 1, 12)] == ["", "…", "The Northwi…"]


def test_a_long_text_is_searched_for_what_is_asked():
    """A sentence in the middle of a text that is too long to be read in full is found by the question."""
    filler = "".join(f"Report {number} has nothing to say about it. " for number in range(40_000))
    middle = len(filler) // 2 - len(filler) // 2 % 10
    cut = filler.index("Report", middle)
    text = f"{filler[:cut]}The Halvorsen crossing is cancelled. {filler[cut:]}"
    assert len(text) > 10 * EXAMINED_CHARS

    shown, left_out, unit = parts(extract(text, 200, asked("the Halvorsen crossing")))

    assert "The Halvorsen crossing is cancelled." in shown
    assert (left_out + len(extract(text, 200, asked("the Halvorsen crossing"))) > len(text), unit) == (
        True,
        "characters",
    )


def test_query_words_are_those_that_say_something():
    """Grammar and single digits are left out, identifiers are kept whole."""
    found = query_words(
        ["Please show me the status of order INV-2024-17", '{"path": "src/app.py", "limit": 5}', "user_id"]
    )

    assert found == {"status", "order", "inv-2024-17", "inv", "path", "src", "app", "limit", "user_id", "user"}


def test_query_words_of_scripts_without_spaces_are_pairs():
    """Any two neighbouring characters may be a word."""
    assert query_words(["退款政策"]) == {"退款", "款政", "政策"}


def test_vowel_signs_do_not_part_a_word():
    """A word of Hindi is one word."""
    assert query_words(["हिन्दी में"]) == {"हिन्दी", "में"}


def test_query_words_are_bounded():
    """A pasted document is a question of its first words."""
    assert len(query_words([" ".join(f"word{number}" for number in range(5_000))])) == 64


def test_no_words_are_none():
    """Without a question only the text itself counts."""
    assert Words() == NO_WORDS
