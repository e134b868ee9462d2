"""Files may know each other in circles of a handful at most: imports for types count too."""

from collections.abc import Mapping

import grimp
import pytest

MOST = 5


def test_no_circle_of_files_has_more_than_five() -> None:
    graph = grimp.build_graph("legato")
    packages = {module for module in graph.modules if graph.find_children(module)}
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules - packages}
    assert [circle for circle in circles(imports) if len(circle) > MOST] == []


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [["a", "b", "c"]]),
        ({"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c"}}, [["a", "b"], ["c", "d"]]),
        ({"a": {"elsewhere", "b"}, "b": {"a"}}, [["a", "b"]]),
    ],
)
def test_circles_are_found(imports: Mapping[str, set[str]], expected: list[list[str]]) -> None:
    assert circles(imports) == expected


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of files, each of which leads to each other one of its group, sorted."""
    reachable = {module: _reachable(module, imports) for module in imports}
    groups = {
        tuple(sorted(other for other in reachable[module] if module in reachable.get(other, ())))
        for module in imports
        if module in reachable[module]
    }
    return sorted(list(group) for group in groups)


def _reachable(start: str, imports: Mapping[str, set[str]]) -> set[str]:
    """Files that one leads to, in any number of steps."""
    found: set[str] = set()
    to_visit = [start]
    while to_visit:
        for module in imports.get(to_visit.pop(), set()) - found:
            found.add(module)
            to_visit.append(module)
    return found
