"""What a person says, sentence by sentence, and which sentences are standing instructions: they hold from then on.

A sentence that is no question holds when it

1. has a word that lasts ("never", "must", "from now on", "I prefer"), or begins as one about manners ("Reply in ...");
2. begins with a case and goes on with an order: "Before you change a file, tell me why.";
3. is an order for a case or for each of many: "Write every date in full.", "Show me its output when a test fails."

Verbs are endless, so an order is what begins with none of the words by which statements and reports begin ("Before
you came, it worked."). A sentence in a script whose words are not listed is taken to hold: what is kept without need
costs room, a rule that is lost is broken.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable

from langchain_ctxwin.core.record import (
    HOLDS,
    NAMED,
    USED,
    WORD,
    RecordLine,
    cut_short,
    has_digit,
    is_value,
    one_line,
)

# a user message that long is a document: its values count, not its sentences
DOCUMENT_CHARS = 1_200
MAX_STATEMENTS = 40  # taken from one message
STATEMENT_CHARS = 240  # two sentences, of talk
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\b(?:Mr|Ms|Dr|St|No)\.)(?<!\b(?:Mrs|e\.g|i\.e|etc)\.)\s+(?=[^\sa-z])|(?<=[。\uff01\uff1f])|\n+"
)
_NUMBERING = re.compile(r"\d{1,2}[.)]")

# In a list of words `_` is a space, `*` any ending.
_LASTS = """
never always must only do_not don't doesn't cannot can't prefer prefers want wants need needs require requires
remember
from_now_on from_now_onwards from_here_on from_here_onwards from_today_on from_then_on from_this_point for_the_rest_of
going_forward in_future in_the_future henceforth by_default as_a_rule at_all_times until_further_notice each_time
every_time whenever instead no_longer at_most at_least no_more_than unless rule deadline budget make_sure be_sure
not_more_than under_no_circumstances you_are_to you_are_not_to keep_in_mind bear_in_mind shall *s_should *s_shouldn't
should_be_in should_be_at should_be_given should_be_written is_to_be are_to_be has_to have_to supposed_to i'd_rather
i_would_rather i'd_like_you i'd_like_every i'd_like_each i'd_like_your i_would_like_you i_would_like_every
i_would_like_each
i_would_like_your stick_to refrain_from
immer nie niemals stets nur muss musst müssen soll sollen sollst sollte sollten darf darfst dürfen künftig in_zukunft
ab_jetzt ab_sofort ab_heute von_nun_an von_jetzt_an jedes_mal jedesmal ich_will ich_möchte ich_mag ich_hätte bevorzuge
höchstens mindestens ausschließlich grundsätzlich denk_daran denken_sie_daran merk_dir achte_darauf achten_sie_darauf
jamais toujours désormais dorénavant à_partir_de_maintenant à_l'avenir dois doit doivent devez il_faut je_préfère
je_veux je_voudrais je_souhaite uniquement seulement par_défaut au_plus au_moins au_maximum n'oublie* ne_*_pas
ne_*_plus
ne_*_que assure-toi assurez-vous chaque_fois
nunca jamás siempre solo sólo solamente únicamente debe debes deben en_adelante a_partir_de_ahora a_partir_de_hoy
prefiero quiero quisiera me_gustaría hay_que tiene_que tienes_que por_defecto como_máximo al_menos recuerda recuerde
asegúrate asegúrese cada_vez_que
mai sempre soltanto d'ora_in_poi da_ora_in_poi in_futuro deve devi devono bisogna preferisco voglio vorrei al_massimo
almeno assicurati ricorda ricordati ogni_volta
apenas somente só de_agora_em_diante daqui_em_diante daqui_para_a_frente devem prefiro quero gostaria tem_que
no_máximo
no_mínimo certifique-se lembre-se toda_vez
altijd nooit alleen moet moeten voortaan alltid aldrig aldri måste skal zawsze nigdy tylko vždy nikdy her_zaman asla
"""
# The same words where they say how things are, or cheer somebody up.
_IDIOMS = """
can't_wait can't_believe can't_imagine can't_agree can't_thank can't_complain can't_beat
must've must_have_been must_have_felt must_have_had must_have_taken must_have_*ed must_feel must_be_so must_be_very
must_be_really must_be_tough must_be_hard must_be_nice must_be_great must_be_fun must_be_exciting
never_forget never_been never_seen never_had never_knew never_thought never_give_up never_gives_up
not_always isn't_always aren't_always wasn't_always not_only only_imagine
always_been always_had always_wanted always_loved i_always_feel always_there_for always_here_for
keep_up keep_it_up keep_going keep_on_*ing keep_learning keep_pushing keep_dreaming i_remember i_do_remember
made_me_remember in_need who_need who_needs basic_needs
"""
# How somebody wants to be served, at the beginning of a sentence: it is said once.
_MANNERS = """
answer_in answer_with answer_as answer_me answer_us reply_to_me reply_in reply_with reply_as respond_in
respond_with respond_as write_in speak_in
talk_in call_me call_us call_him call_her call_them call_it call_the address_me address_us refer_to treat keep use
avoid
stop_*ing stay limit round put start_with start_your begin_with begin_your end_with end_your close_with spell_out cite
be_brief be_concise be_short be_polite be_careful
antworte antworten nenn nenne nennen verwend* benutz* vermeid* halte halten beende beenden beginn beginne beginnen
runde
bleib* setz* duze* sieze* kein keine
répond* utilis* emploi* évit* appel* garde gardez commence commencez termine terminez arrondi* limite* tutoi* tutoy*
vouvoi* vouvoy* mets mettez pas_de pas_d'*
responde responda contesta conteste usa usen utiliza utilice evita evite llám* mantén* mantenga* empieza empiece
comienza
comience termina acaba acabe redondea redondee limita trata pon ponga no_toque* no_use* no_borr* no_cambi*
no_hagas no_pongas no_escribas no_env*
rispond* chiam* mantieni mantenga inizia comincia arrotonda niente metti non_*are non_*ere non_*ire
chame me_chame mantenha comece encerre arredonde nada_de não_toque não_use não_apague não_mude
não_altere não_envie não_escreva não_faça
"""
# What an order waits for.
_CASES = """
before after when whenever if once until unless while as_soon_as as_long_as in_case wherever whatever upon
prior_to ahead_of on_*days from_*_on should_a should_an should_any should_the
bevor ehe nachdem wenn falls sobald solange
avant après quand lorsqu* si s'il dès tant_qu* une_fois en_cas
antes después tras cuando si en_cuanto mientras hasta
prima dopo quando se appena non_appena finché in_caso
depois após sempre_que assim_que enquanto até caso
voordat wanneer zodra innan när før når zanim kiedy gdy
"""
# Each of many, or whatever the agent is going to write.
_EACH = """
each every everything for_all in_all on_all all_your all_my all_*s_as all_*s_in all_*s_with all_*s_by your_answer*
your_repl* your_message* your_response*
your_suggestion* your_question* your_estimate* your_draft* your_plan*
your_report* your_summar* your_list* your_table* your_commit* your_code
jede jeder jedes jeden jedem alle allen aller deine deinen deiner ihre ihren ihrer
chaque tous_l* toutes_l* tous_tes tous_vos tes vos
cada todo todos toda todas tus sus
ogni tutti tutte tuoi tue vostri vostre
suas seus teus tuas
elke ieder iedere alla varje hver każd*
"""
# By these begin statements, reports and questions: who or what is spoken of, and what leads up to it.
_NO_ORDERS = """
i you he she it we they my your his its our their one somebody someone nobody nothing everybody everyone everything
none this that these those there here a an the some any no each every all both few many most more several two three
four five six seven eight nine ten half another other such what which who whose why how where when
is are was were am been has have had does did can could will would may might shall should must
in on at by for from with without of to into about over under through since during than per before after while if
and or but so because although though as once until unless yes no yeah ok okay hi hello hey thanks thank sorry sure
great good fine well right oh also just even still already almost very too not now then later today yesterday
tomorrow maybe perhaps actually unfortunately finally usually sometimes often somewhere
ich du er sie es wir ihr man der die das den dem des ein eine einer einen einem mein meine dein unser unsere sein
seine niemand nichts alles etwas jemand dies diese dieser wer wie wo warum wann ist sind war waren wurde wurden wird
lief kam ging gab hat haben hatte hatten habe kann konnte fand gestern heute hier im am auf mit von zu und oder aber
weil dass nein ja danke hallo
je tu il elle on nous vous ils elles le la les un une des du l mon ma mes ton ta son sa ses notre nos votre leur ce
cet cette ces cela ça c j qui que quoi où comment pourquoi était est sont a ont avait hier personne rien tout merci
bonjour oui non et ou mais dans en sur avec pour par de d au aux
yo tú él ella ello ellos ellas el los las lo una unos unas mi mis su nuestro nuestra este esta esto ese esa eso nadie
nada algo quien qué cómo dónde cuándo por fue fueron era estaba es son está ha había hay ayer hoy gracias hola sí y o
pero con sin del
io lui lei noi voi loro gli uno mia mio suo sua nostro questo questa nessuno chi dove perché sono è hanno aveva ieri
oggi grazie ciao ma nel nella eu ele ela nós eles os as um uma meu minha isto isso ninguém foi eram estava são ontem
hoje obrigado obrigada olá não com em no na do da
"""
_LEADING = re.compile(
    r"^(?:(?:thanks|thank you|great|perfect|nice|hello|hi|hey)(?: \w+)?,\s+|[^\W\d_][\w ,']{0,40}:\s+"
    r"|(?:and|also|but|so|then|oh|ok|okay|well|by the way|please|kindly|und|auch|bitte|et|aussi"
    r"|s'il (?:te|vous) pla[iî]t|y|también|por favor|e|anche|per favore|também)\b[,:]?\s+)+",
    re.IGNORECASE,
)
_ASKING = re.compile(r"(?:can|could|would|will) you (?:please )?", re.IGNORECASE)
_QUESTION_MARKS, _BEHIND_THEM = ("?", "\uff1f", "\u061f"), " .!\"')*_\u2026\u201d\u00bb"
_TO_ME = re.compile(
    r"\b(?:tell|show|ask|give|send|read|let|warn|remind|call) (?:\w+ to )?(?:me|us)\b",
    re.IGNORECASE,
)
# "RULE: ..." and "No tables." hold by how they begin.
_LABELLED = re.compile(
    r"[A-Z][A-Z ]{2,30}:|[Nn]o (?!thanks|worries|problems)\w+s\b(?!,(?! please)| (?:found|were|are|have|ran))"
)
# A question inside of an order, and what is no case of its own: "Check if it is there.", "By train if possible."
_INDIRECT = re.compile(
    r"\b(?:check|confirm|see|know|verify|out|sure|wonder|tell me|show me|determine) (?:if|when)\b"
    r"|\b(?:if|when|as soon as) (?:possible|needed|necessary|available|you can)\b",
    re.IGNORECASE,
)
_LABEL = re.compile(r"[A-Z][A-Z ]{2,30}:\s")
_LATIN, _OTHER_SCRIPT = (
    re.compile(r"[A-Za-z\u00c0-\u024f]"),
    re.compile(r"[^\W\d_\u0000-\u024f\u1e00-\u1eff]"),
)
_FIRST_WORD = re.compile(r"([^\W\d_][^\W\d_A-Z]+)(?:-\w+)*(?:,? (\S+)|\W*$)")
_STATES = "is are was were has have had does did can could will would should must"


def _words(listed: str) -> re.Pattern[str]:
    """A pattern that finds any of the listed words where it stands alone, in a text of small letters.

    Words are grouped by their first letter, or each of hundreds would be tried at each word of a text.
    """
    endings = defaultdict[str, list[str]](list)
    for word in listed.split():
        first, *others = (_SPELLED.get(sign, re.escape(sign)) for sign in word)
        endings[first].append("".join(others))
    alternatives = "|".join(
        f"{first}(?:{'|'.join(others)})" for first, others in endings.items()
    )
    return re.compile(rf"(?<![\w'-])(?:{alternatives})(?![\w'-])")


_SPELLED = {"_": " ", "*": r"[\w'-]*"}
_LASTING, _IDIOM, _MANNER, _CASE, _MANY = map(
    _words, (_LASTS, _IDIOMS, _MANNERS, _CASES, _EACH)
)
_EVERY = _words("each every")
_STATEMENT_WORDS = frozenset(_NO_ORDERS.split())
# Orders that end as plurals do ("Tests fail when ..." is none).
_ORDERS_IN_S = "focus mets lis dis fais finis prends traduis"


StandingTest = Callable[[str], bool]
"""Says whether a sentence of a person goes on to hold."""


def statements(text: str, key: str, holds: StandingTest) -> list[RecordLine]:
    """The statements of a person, of a long text from both ends; one behind a label ("RULE: ...") is an instruction."""
    both = (
        f"{text[:DOCUMENT_CHARS]}\n{text[-DOCUMENT_CHARS:]}"
        if len(text) > 2 * DOCUMENT_CHARS
        else text
    )
    lines = list[RecordLine]()
    for line in map(one_line, both.split("\n")):
        for sentence in sentences(line):
            uses = (
                HOLDS
                if is_labelled(line) or holds(sentence)
                else USED
                if _has_value(sentence)
                else NAMED
            )
            chars = DOCUMENT_CHARS if uses == HOLDS else STATEMENT_CHARS
            lines.append(RecordLine("said", cut_short(sentence, chars), key, uses))
    return lines[:MAX_STATEMENTS]


def sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text; a number of a list alone is none."""
    parts = (" ".join(part.split()) for part in _SENTENCE_END.split(text))
    return [part for part in parts if len(part) > 1 and not _NUMBERING.fullmatch(part)]


def _has_value(statement: str) -> bool:
    return has_digit(statement) or any(map(is_value, WORD.findall(statement)))


def is_standing(sentence: str) -> bool:
    """True for a sentence that says how things are to be done from then on; none that asks something does.

    Examples:
        >>> is_standing("End each answer with what is open.")
        True
        >>> is_standing("Before you ask, nobody was hurt.")
        False
    """
    said = sentence.replace("\u2019", "'").strip(" -*\"'\u2022")
    plain = _LEADING.sub("", said)
    asking, small = _ASKING.match(plain), _IDIOM.sub("", plain.lower())
    lasts = _LASTING.search(small) or _MANNER.match(small)
    if _is_question(said) and not (asking and (lasts or _EVERY.search(small))):
        return False
    if lasts or _LABELLED.match(said) or _is_unlisted(said):
        return True
    plain = plain[asking.end() :] if asking else plain
    small, order = plain.lower(), plain.partition(",")[2].lstrip()
    if _is_order(order) and order[0].islower():
        case = small.partition(",")[0]
        if _CASE.match(case) or _MANY.search(case):
            return True
    if _CASE.match(small):
        return bool(_TO_ME.search(plain))
    return _is_order(plain) and bool(
        _MANY.search(small) or _CASE.search(_INDIRECT.sub("", plain).lower())
    )


def standing_test(others: re.Pattern[str] | StandingTest | None) -> StandingTest:
    """Return the test for standing instructions: the words of this module, and a pattern or function of the user's."""
    if others is None:
        return is_standing
    is_other = others.search if isinstance(others, re.Pattern) else others
    return lambda sentence: is_standing(sentence) or bool(is_other(sentence))


def is_labelled(line: str) -> bool:
    """True for a line that begins with a label in capitals, such as "RULES:"."""
    return bool(_LABEL.match(line))


def _is_order(clause: str) -> bool:
    """True for a clause that probably begins with a verb: with no word that begins a statement, and no plural."""
    first_word = _FIRST_WORD.match(_LEADING.sub("", clause))
    if first_word is None or first_word[2] in _STATES.split():
        return False
    word = first_word[1].lower()
    is_form = (
        word.isascii()
        and word.endswith(("ing", "ted", "s"))
        and not word.endswith("ss")
    )
    return word not in _STATEMENT_WORDS and (
        not is_form or word in _ORDERS_IN_S.split()
    )


def _is_question(said: str) -> bool:
    return said.rstrip(_BEHIND_THEM).endswith(_QUESTION_MARKS) or said.startswith(
        "\u00bf"
    )


def _is_unlisted(said: str) -> bool:
    """True for a sentence in a script whose words are not listed."""
    if said.isascii():
        return False
    return len(_OTHER_SCRIPT.findall(said)) > len(_LATIN.findall(said))
