"""Parsing and formatting of property values, as in Kafka."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.formats.config_property import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    STRING,
    ConfigError,
    ConfigProperty,
    PropertyType,
    Value,
)


def declared(type_: PropertyType, **changes: object) -> ConfigProperty:
    facts: dict[str, object] = {
        "name": "some.name",
        "default": None,
        "at_least": None,
        "at_most": None,
        "choices": (),
        "unit": "",
        "dynamic": True,
        "internal": False,
        "synonyms": (),
        "doc": "",
    }
    return ConfigProperty(type=type_, **(facts | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (INT, " 12 ", 12),
        (INT, "-1", -1),
        (INT, "+7", 7),
        (LONG, "9223372036854775807", 2**63 - 1),
        (DOUBLE, "0.5", 0.5),
        (DOUBLE, "1.7976931348623157E308", 1.7976931348623157e308),
        (DOUBLE, "3", 3.0),
        (DOUBLE, ".5", 0.5),
        (BOOLEAN, "TRUE", True),
        (BOOLEAN, "false", False),
        (STRING, " some text ", "some text"),
        (LIST, "a, b ,c", ("a", "b", "c")),
        (LIST, "", ()),
        (LIST, " a ", ("a",)),
    ],
)
def test_a_text_is_parsed_as_kafka_parses_it(type_: PropertyType, text: str, value: Value) -> None:
    assert declared(type_).parse(text) == value


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (INT, ""),
        (INT, "1_000"),
        (INT, "1.0"),
        (INT, "٣"),
        (INT, "2147483648"),
        (INT, "9" * 5000),
        (LONG, "9223372036854775808"),
        (DOUBLE, "nan"),
        (DOUBLE, "infinity"),
        (DOUBLE, "1e999"),
        (DOUBLE, ""),
        (BOOLEAN, "yes"),
        (BOOLEAN, ""),
        (LIST, "a,a"),
    ],
)
def test_a_text_of_another_type_is_refused_in_one_line(type_: PropertyType, text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^Invalid value .+ for configuration some\.name: "
    ) as refused:
        declared(type_).parse(text)

    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


def test_the_error_of_a_value_out_of_range_has_name_value_and_range() -> None:
    size = declared(INT, name="segment.bytes", at_least=1 << 20, unit="bytes")
    ratio = declared(DOUBLE, name="ratio", at_least=0, at_most=1)

    with pytest.raises(
        ConfigError,
        match=r"^Invalid value 12 for configuration segment\.bytes: Value must be at least 1048576$",
    ):
        size.parse("12")
    with pytest.raises(ConfigError, match=r"configuration ratio: Value must be no more than 1$"):
        ratio.parse("1.5")
    assert size.parse("1048576") == 1 << 20
    assert ratio.parse("1") == 1.0


def test_the_error_of_a_value_that_is_no_choice_lists_the_choices() -> None:
    policy = declared(LIST, name="policy", choices=("compact", "delete"))

    with pytest.raises(
        ConfigError,
        match=r"^Invalid value dedupe for configuration policy: String must be one of: compact, delete$",
    ):
        policy.parse("dedupe")
    with pytest.raises(ConfigError):
        policy.parse("compact,")
    assert policy.parse("delete,compact") == ("delete", "compact")
    assert policy.parse("delete,compact,delete") == ("delete", "compact")


def test_a_value_with_control_characters_cannot_break_the_line() -> None:
    with pytest.raises(ConfigError) as refused:
        declared(INT).parse("1\n2")

    assert "\n" not in str(refused.value)


def test_a_password_is_never_shown() -> None:
    secret = declared(PASSWORD, choices=("other",))

    with pytest.raises(ConfigError, match="<hidden>") as refused:
        secret.parse("hunter2")

    assert "hunter2" not in str(refused.value)


@given(
    st.one_of(
        st.tuples(st.just(LONG), st.integers(-(2**63), 2**63 - 1)),
        st.tuples(st.just(DOUBLE), st.floats(allow_nan=False, allow_infinity=False)),
        st.tuples(st.just(BOOLEAN), st.booleans()),
        st.tuples(
            st.just(LIST),
            st.lists(st.text("abc.-", min_size=1), unique=True).map(tuple),
        ),
    )
)
def test_a_formatted_value_is_parsed_back(pair: tuple[PropertyType, Value]) -> None:
    type_, value = pair
    text = declared(type_).format(value)
    assert text is not None
    assert declared(type_).parse(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (0.5, "0.5"),
        (0.001, "0.001"),
        (0.0005, "5.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (52428800.0, "5.24288E7"),
        (-12500000000.5, "-1.25000000005E10"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_a_number_is_written_as_java_writes_it(value: float, text: str) -> None:
    assert declared(DOUBLE).format(value) == text
