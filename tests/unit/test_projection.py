import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxwin.core.field_paths import compile_fields
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.tool_results.projection import Kind, Projected, classify, project, project_automatically

LISTING = {
    "total": 2,
    "items": [
        {
            "id": 1,
            "price": {"base": 90, "fees": {"cleaning": 20}},
            "a.b": {"c": 1},
            "owner": {"urls": ["x"], "name": "Ann"},
        },
        {
            "id": 2,
            "price": {"base": 70, "fees": {"cleaning": 15}},
            "a.b": {"c": 2},
            "owner": {"urls": ["y"], "name": "Bob"},
        },
    ],
}


def cut(text, chars):
    return text[:chars]


def automatic(value, text_chars=20):
    return project_automatically(value, text_chars=text_chars, shorten=cut)


# Configured fields.


def test_named_fields_are_kept_and_the_rest_is_reported():
    """Siblings are merged; of what is left out as a whole only the top is named."""
    projected = project(LISTING, ["items[].price.base", "items.price.fees", "items[].id", "pages"])
    value = {
        "items": [
            {"id": 1, "price": {"base": 90, "fees": {"cleaning": 20}}},
            {"id": 2, "price": {"base": 70, "fees": {"cleaning": 15}}},
        ]
    }
    left_out = ("total", 'items[]."a.b"', "items[].owner")
    assert project(LISTING, ["items[].price.base"]).left_out == (
        "total", "items[].id", "items[].price.fees", 'items[]."a.b"', "items[].owner",
    )  # fmt: skip
    assert projected == Projected(value=value, missing=("pages",), left_out=left_out)


@pytest.mark.parametrize("fields", [["*"], ["**"], ["total", "items"], ["*", "items.id"], ["items.**", "total"]])
def test_everything_is_kept_when_everything_is_named(fields):
    """A star takes whatever there is."""
    assert project(LISTING, fields) == Projected(value=LISTING)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ('items."a.b".c', {"items": [{"a.b": {"c": 1}}, {"a.b": {"c": 2}}]}),
        ("items[].*.base", {"items": [{"price": {"base": 90}}, {"price": {"base": 70}}]}),
        ("*.id", {"items": [{"id": 1}, {"id": 2}]}),
        (" items[].owner.name ", {"items": [{"owner": {"name": "Ann"}}, {"owner": {"name": "Bob"}}]}),
        (
            "items.*.*.cleaning",
            {"items": [{"price": {"fees": {"cleaning": 20}}}, {"price": {"fees": {"cleaning": 15}}}]},
        ),
    ],
)
def test_a_path_leads_through_lists_stars_and_quotes(field, value):
    """Each spelling of a step is understood."""
    projected = project(LISTING, [field])
    assert (projected.value, projected.missing) == (value, ())


def test_a_key_and_a_star_beside_it_are_merged():
    """What either names is kept."""
    value = {"a": {"id": 1, "x": 2, "y": 3}, "b": {"id": 4, "x": 5}}
    assert project(value, ["*.id", "a.x"]).value == {"a": {"id": 1, "x": 2}, "b": {"id": 4}}


def test_rows_stay_aligned():
    """An item without the fields is shown as an empty object, so that the third row stays the third."""
    rows = [{"id": 1, "x": 0}, {"x": 0}, {"id": 3}, None, 5]
    assert project(rows, ["id"]) == Projected(value=[{"id": 1}, {}, {"id": 3}, {}, {}], left_out=("[]", "[].x"))
    assert project(rows, ["[].none"]).value == [{}] * 5


def test_nothing_of_a_list_or_object_leaves_it_out():
    """Where nothing is named, nothing is shown; an empty list stays, for it has no other rows."""
    value = {"tags": ["a"], "meta": {"x": 1}, "none": [], "id": 1}
    projected = project(value, ["tags.name", "meta.y", "none.id", "id"])
    assert projected == Projected(
        value={"none": [], "id": 1}, missing=("tags.name", "meta.y", "none.id"), left_out=("tags", "meta")
    )


def test_null_and_empty_values_are_kept_when_they_are_named():
    """A field that is there is shown, whatever it holds."""
    value = {"a": None, "b": {"c": "", "d": []}}
    assert project(value, ["a", "b.c", "b.d"]) == Projected(value=value)


def test_a_scalar_has_no_fields_to_choose_from():
    """It is shown as it is."""
    assert project("text", ["a"]) == Projected(value="text", missing=("a",))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (["a..b"], "'a..b' has an empty key"),
        ([""], "'' has an empty key"),
        (["a."], "'a.' has an empty key"),
        (['"a.b'], "a quote that is not closed"),
        (['a"b"'], "not at the start of a key"),
        (['"\\x".a'], "is not a JSON string"),
        (["items[0].id"], "cannot be read at '[0].id'"),
        (["a[].[]"], "has an empty key"),
        (["na*"], "stands for a whole key"),
        (["**.id"], "can only stand last"),
        ([3], "field path 3 is a int"),
        ("id", "fields='id' is one text"),
        ([], "fields is empty"),
    ],
)
def test_a_path_that_cannot_be_read_is_refused(fields, said):
    """The error names the path and what is wrong."""
    with pytest.raises(ConfigError) as error:
        project({}, fields)
    assert said in str(error.value)


def test_paths_are_compiled_once():
    """The same fields are the same object."""
    assert compile_fields(["a.b", "c"]) is compile_fields(("a.b", "c"))


def test_rows_that_share_no_key_take_time_of_their_size():
    """Wildcards over unlike rows do not look for every key in every row."""
    rows = [{f"key{row}_{column}": {"id": 1} for column in range(20)} for row in range(3_000)]
    assert project(rows, ["[].*.id"]).value == rows


KEYS = st.sampled_from(["id", "name", "url", "is_open", "has_x", "a", "b.c", "", "*", 'q"', "[]", "body", " x", "\n"])
TEXTS = st.sampled_from(["", "word", "https://a.example/b", "2024-05-31", "12.50", "long " * 9])
SCALARS = st.none() | st.booleans() | st.integers(0, 2) | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inside: st.lists(inside, max_size=4) | st.dictionaries(KEYS, inside, max_size=4), max_leaves=25
)
CONTAINERS = VALUES.filter(lambda value: isinstance(value, dict | list))
FIELDS = st.lists(
    st.sampled_from(["id", "[].id", "name", "a", "*.id", "a.*", '"b.c".a', '""', "a.a.id", "*.*", "url.a"]), min_size=1
)


def together(shown, rest):
    """Merge two parts of one value."""
    if isinstance(shown, dict) and isinstance(rest, dict):
        both = {key: together(shown[key], rest[key]) for key in shown.keys() & rest.keys()}
        return {**shown, **rest, **both}
    if isinstance(shown, list) and isinstance(rest, list):
        return [together(*pair) for pair in zip(shown, rest, strict=True)]
    return rest if shown == {} else shown


@given(CONTAINERS, FIELDS)
def test_what_is_shown_and_what_is_left_out_are_everything(value, fields):
    """The paths that were left out can be asked for, and bring back all that was missing."""
    projected = project(value, fields)
    rest = project(value, projected.left_out).value if projected.left_out else type(value)()
    assert (together(projected.value, rest) if projected.left_out else projected.value) == value


@given(CONTAINERS)
def test_the_fields_that_rules_left_out_can_be_asked_for(value):
    """Every path of the automatic projection leads somewhere, and is named once."""
    left_out = automatic(value).left_out
    assert len(set(left_out)) == len(left_out)
    if left_out:
        assert project(value, left_out).missing == ()


# Fields chosen by rules.


def rows_of(value):
    """Yield every list of a value with its place."""
    if isinstance(value, list):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from rows_of(child)


@given(CONTAINERS)
def test_no_row_is_lost_or_emptied(value):
    """Lists that are shown keep their length, and an item that held something shows something."""
    shown = automatic([value]).value
    for before, after in zip([[value]], [shown], strict=True):
        assert [bool(item) for item in before] == [bool(item) for item in after]
    if isinstance(value, list):
        assert [bool(item) or item in (0, False) for item in value if isinstance(item, dict)] == [
            bool(item) for item in shown[0] if isinstance(item, dict)
        ]
        assert len(shown[0]) == len(value)


@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=4), max_size=4))
def test_a_row_is_shown_alike_alone_and_among_others(rows):
    """So pages agree with the whole."""
    assert automatic(rows).value == [automatic(row).value for row in rows]


def test_what_tells_rows_apart_is_kept():
    """Identifiers, names, states, amounts, dates and texts stay; nulls, flags, URLs and the rest go."""
    row = {
        "id": 7,
        "url": "https://api.example/7",
        "full_name": "ann/tool",
        "state": "open",
        "draft": False,
        "has_wiki": True,
        "color": "red",
        "size": 0,
        "createdAt": "2024-05-31T10:00:00Z",
        "body": "a long text that is cut",
        "closed_by": None,
        "labels": [],
        "tags": ["a", "b"],
        "links": {"self": "https://api.example/7", "next": {"href": "https://api.example/8"}},
    }
    shown = {
        "id": 7,
        "full_name": "ann/tool",
        "state": "open",
        "draft": False,
        "size": 0,
        "createdAt": "2024-05-31T10:00:00Z",
        "body": "a long text that is ",
        "tags": ["a", "b"],
    }
    left_out = ("url", "has_wiki", "color", "links")
    assert automatic(row) == Projected(value=shown, left_out=left_out, shortened=("body",))


def test_rows_without_a_name_keep_their_texts():
    """Without them the numbers of a table would mean nothing."""
    rows = [
        {"job": "Actor", "sport": "chess", "count": 3, "perc": 0.1},
        {"job": "Cook", "sport": "golf", "count": 0, "perc": 0.0},
    ]
    assert automatic(rows) == Projected(value=rows)


def test_one_url_stays_where_it_is_all_that_identifies():
    """A search result is opened by its link; an object inside an identified one needs none."""
    found = {"title": "Ann", "link": "https://a.example", "image": "https://a.example/i.png", "content": "text"}
    kept = {"title": "Ann", "link": "https://a.example", "content": "text"}
    assert automatic(found) == Projected(value=kept, left_out=("image",))
    assert automatic({"id": 1, "of": [{"href": "https://b.example"}]}).value == {
        "id": 1,
        "of": [{"href": "https://b.example"}],
    }


def test_a_row_of_which_nothing_would_be_left_is_kept_whole():
    """Flags are all that it says; others may do without theirs."""
    rows = [{"has_wiki": True, "has_pages": False}, {"id": 1, "has_wiki": True}, {"has_wiki": None}]
    expected = [{"has_wiki": True, "has_pages": False}, {"id": 1}, {"has_wiki": None}]
    assert automatic(rows) == Projected(value=expected, left_out=("[].has_wiki",))


def test_texts_are_shortened_wherever_they_stand():
    """In lists, at the top, and in rows that are kept whole; short ones are not touched."""
    text = "x y " * 10
    assert automatic(text) == Projected(value=text[:20], shortened=("*",))
    assert automatic({"id": 1, "notes": ["ok", text]}) == Projected(
        value={"id": 1, "notes": ["ok", text[:20]]}, shortened=("notes[]",)
    )
    assert project_automatically({"body": text}, text_chars=20, shorten=lambda text, _: text) == Projected(
        value={"body": text}
    )


def test_the_value_is_not_changed():
    """What was given is read only."""
    value = {"id": 1, "url": "https://a.example", "rows": [{"has_x": True}, {"body": "x " * 30}]}
    before = repr(value)
    automatic(value)
    project(value, ["rows.body"])
    assert repr(value) == before


@pytest.mark.parametrize("wrap", [lambda value: {"a": value}, lambda value: [value], lambda value: [{"a": value}]])
def test_deep_values_are_projected(wrap):
    """A hundred levels are no trouble."""
    value = wrap({"id": 1})
    for _ in range(100 if len(repr(wrap(1))) < 8 else 50):
        value = wrap(value)
    assert automatic(value) == Projected(value=value)
    assert project(value, ["*"]) == Projected(value=value)
    assert project([value], ["b"]).value == [{}]


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("id", 7, Kind.IDENTIFIER),
        ("listingMapIds", "4", Kind.IDENTIFIER),
        ("userIDs", "4", Kind.IDENTIFIER),
        ("@id", "https://schema.example/1", Kind.IDENTIFIER),
        ("x", "123e4567-e89b-12d3-a456-426614174000", Kind.IDENTIFIER),
        ("html_url", "https://a.example", Kind.URL),
        ("path", "s3://bucket/key", Kind.URL),
        ("firstName", "Ann", Kind.NAME),
        ("title", "word " * 40, Kind.TEXT),
        ("state_reason", "completed", Kind.STATE),
        ("isPaid", 0, Kind.STATE),
        ("is_admin", True, Kind.STATE),
        ("archived", False, Kind.STATE),
        ("hasWiki", 1, Kind.FLAG),
        ("allow_merge", True, Kind.FLAG),
        ("has_count", 1, Kind.AMOUNT),
        ("US Gross", 146_083, Kind.AMOUNT),
        ("whatever", 10**30, Kind.AMOUNT),
        ("whatever", float("nan"), Kind.AMOUNT),
        ("balance", "EUR 12,50", Kind.AMOUNT),
        ("vat", "19.0e0", Kind.AMOUNT),
        ("Release Date", "Jun 12 1998", Kind.DATE),
        ("updated_at", 1_717_149_600, Kind.DATE),
        ("whatever", "31/05/2024", Kind.DATE),
        ("body", "hi", Kind.TEXT),
        ("whatever", "word " * 40, Kind.TEXT),
        ("whatever", "QUJD" * 40, Kind.OTHER),
        ("color", "red", Kind.OTHER),
        ("", "red", Kind.OTHER),
        ("名前", "red", Kind.OTHER),
    ],
)
def test_a_field_is_classified_by_its_key_and_value(key, value, kind):
    """The tables of the module say which."""
    assert classify(key, value) is kind
