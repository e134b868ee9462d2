"""Random selectors as plain tuples, their text, and what they mean by the tables of the specification, told naively.

This knows nothing of the compiler: values of three-valued logic are True, False and None, and all is computed as it is
written in Jakarta Messaging 3.8.1.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Message = dict[str, Any]
Node = tuple[Any, ...]

NAMES = ["a", "b", "c", "JMSType"]
STRINGS = st.text("ab%_!' ", max_size=5)
INTEGERS = st.integers(-4, 4) | st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1])
REALS = st.sampled_from([0.0, 0.5, -2.0, 1e300, 9007199254740992.0])
VALUES = st.none() | STRINGS | INTEGERS | REALS | st.booleans()
MESSAGES = st.dictionaries(st.sampled_from(NAMES), VALUES)

identifiers = st.sampled_from(NAMES).map(lambda name: ("name", name))
numbers = (INTEGERS | REALS).map(lambda value: ("number", value))
sums = st.recursive(
    identifiers | numbers,
    lambda inner: (
        st.tuples(st.sampled_from(["+", "-", "*", "/"]), inner, inner) | st.tuples(st.just("negative"), inner)
    ),
    max_leaves=4,
)
texts = STRINGS.map(lambda value: ("string", value))
booleans = st.booleans().map(lambda value: ("boolean", value))
patterns = st.lists(st.sampled_from(["a", "b", "%", "_", "!%", "!_", "!!", "'", " "]), max_size=6).map("".join)
negations = st.booleans()

simple = st.one_of(
    identifiers,
    booleans,
    st.tuples(st.sampled_from(["=", "<>"]), identifiers, texts | booleans | identifiers),
    st.tuples(st.sampled_from(["=", "<>"]), texts, identifiers | texts),
    st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), sums, sums),
    st.tuples(st.just("between"), negations, sums, sums, sums),
    st.tuples(st.just("in"), negations, identifiers, st.lists(STRINGS, min_size=1, max_size=3)),
    st.tuples(st.just("like"), negations, identifiers, patterns),
    st.tuples(st.just("null"), negations, identifiers),
)
conditions = st.recursive(
    simple,
    lambda inner: st.tuples(st.sampled_from(["and", "or"]), inner, inner) | st.tuples(st.just("not"), inner),
    max_leaves=6,
)


def text_of(node: Node) -> str:
    """The selector, with brackets wherever they do no harm."""
    match node:
        case ("name", name):
            return str(name)
        case ("number", value):
            return str(value)
        case ("string", value):
            return _quoted(value)
        case ("boolean", value):
            return str(value).upper()
        case ("negative", inner):
            return f"-({text_of(inner)})"
        case ("+" | "-" | "*" | "/" | "=" | "<>" | "<" | "<=" | ">" | ">=" as operator, left, right):
            return f"({text_of(left)} {operator} {text_of(right)})"
        case ("between", negated, value, low, high):
            return f"({text_of(value)} {_not(negated)}BETWEEN {text_of(low)} AND {text_of(high)})"
        case ("in", negated, name, strings):
            return f"({text_of(name)} {_not(negated)}IN ({', '.join(map(_quoted, strings))}))"
        case ("like", negated, name, pattern):
            return f"({text_of(name)} {_not(negated)}LIKE {_quoted(pattern)} ESCAPE '!')"
        case ("null", negated, name):
            return f"({text_of(name)} IS {_not(negated)}NULL)"
        case ("not", inner):
            return f"(NOT {text_of(inner)})"
        case ("and" | "or" as operator, left, right):
            return f"({text_of(left)} {operator.upper()} {text_of(right)})"
    raise AssertionError(node)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _not(negated: bool) -> str:
    return "NOT " if negated else ""


def truth_of(node: Node, message: Message) -> bool | None:
    """True, False, or None for unknown."""
    match node:
        case ("name", name):
            value = message.get(name)
            return bool(value) if isinstance(value, bool) else None
        case ("boolean", value):
            return bool(value)
        case ("and", left, right):
            pair = [truth_of(left, message), truth_of(right, message)]
            return False if False in pair else None if None in pair else True
        case ("or", left, right):
            pair = [truth_of(left, message), truth_of(right, message)]
            return True if True in pair else None if None in pair else False
        case ("not", inner):
            truth = truth_of(inner, message)
            return None if truth is None else not truth
        case ("between", False, value, low, high):
            return truth_of(("and", (">=", value, low), ("<=", value, high)), message)
        case ("between", True, value, low, high):
            return truth_of(("or", ("<", value, low), (">", value, high)), message)
        case ("null", negated, name):
            return bool((message.get(name[1]) is None) != negated)
        case ("in" | "like" as operator, negated, name, what):
            text = message.get(name[1])
            if not isinstance(text, str):
                return None if text is None else False
            found = text in what if operator == "in" else is_like(text, what)
            return bool(found != negated)
        case (operator, left, right):
            return _compared(operator, value_of(left, message), value_of(right, message))
    raise AssertionError(node)


def is_like(text: str, pattern: str) -> bool:
    """By trying everything."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(is_like(text[skipped:], pattern[1:]) for skipped in range(len(text) + 1))
    if pattern[0] == "!":
        return text[:1] == pattern[1] and is_like(text[1:], pattern[2:])
    return bool(text) and pattern[0] in ("_", text[0]) and is_like(text[1:], pattern[1:])


def _compared(operator: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    both_numbers = _is_number(left) and _is_number(right)
    if not both_numbers and (operator not in ("=", "<>") or type(left) is not type(right)):
        return False
    if both_numbers and type(left) is not type(right):
        left, right = float(left), float(right)
    return bool(
        {
            "=": lambda: left == right,
            "<>": lambda: left != right,
            "<": lambda: left < right,
            "<=": lambda: left <= right,
            ">": lambda: left > right,
            ">=": lambda: left >= right,
        }[operator]()
    )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def value_of(node: Node, message: Message) -> Any:
    """A value, None if it is missing or cannot be computed."""
    match node:
        case ("name", name):
            return message.get(name)
        case ("number" | "string" | "boolean", value):
            return value
        case ("negative", inner):
            value = value_of(inner, message)
            return _long(-value) if _is_number(value) else None
        case (operator, left, right):
            first, second = value_of(left, message), value_of(right, message)
            if not _is_number(first) or not _is_number(second):
                return None
            return _calculated(operator, first, second)
    raise AssertionError(node)


def _calculated(operator: str, first: Any, second: Any) -> Any:
    if operator != "/":
        return _long({"+": first + second, "-": first - second, "*": first * second}[operator])
    if type(first) is type(second) is int:
        if second == 0:
            return None
        whole = abs(first) // abs(second)
        return _long(whole if (first >= 0) == (second > 0) else -whole)
    first, second = float(first), float(second)
    if second:
        return first / second
    if first == 0 or first != first:
        return float("nan")
    return float("inf") if (first > 0) == (str(second)[0] != "-") else float("-inf")


def _long(value: Any) -> Any:
    """The lowest 64 bits of a whole number, with a sign."""
    if type(value) is not int:
        return value
    low = value % 2**64
    return low - 2**64 if low >= 2**63 else low
