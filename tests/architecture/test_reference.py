"""The reference names every setting, fact, error and wire name that there is."""

from pathlib import Path

import msgspec
import pytest

from legato.amqp import names
from legato.client import AcknowledgeMode
from legato.client.failover.uri import Options
from legato.core.facts import Fact
from legato.core.settings import AddressSettings
from legato.errors import LegatoError, tree
from legato.server.config.configuration import Config, load

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def settings() -> list[str]:
    sections = [field.type for field in msgspec.structs.fields(Config) if field.name not in ("address", "role")]
    return [key.encode_name for section in [*sections, AddressSettings] for key in msgspec.structs.fields(section)]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("configuration.md", settings()),
        ("facts.md", [fact.__name__ for fact in Fact.__subclasses__()]),
        (
            "errors.md",
            [
                error.__name__
                for error in tree()
                if error.__module__ == LegatoError.__module__ and error is not LegatoError
            ],
        ),
        ("client.md", [field.name for field in msgspec.structs.fields(Options)]),
        ("client.md", list(AcknowledgeMode.__members__)[:4]),
        ("wire.md", [value for key, value in vars(names).items() if key.isupper()]),
    ],
)
def test_a_page_names_everything_it_is_about(page: str, expected: list[str]) -> None:
    text = (REFERENCE / page).read_text()
    assert [name for name in expected if name not in text] == []


def test_the_facts_are_shown_with_all_their_fields() -> None:
    rows = [line.split("|") for line in (REFERENCE / "facts.md").read_text().splitlines() if line.startswith("| `")]
    shown = {row[1].strip(" `"): row[3].replace("`", "").strip().split(", ") for row in rows if len(row) == 5}
    assert shown == {fact.__name__: list(fact.__struct_fields__) for fact in Fact.__subclasses__()}


def test_the_configuration_shown_is_one_that_works(tmp_path: Path) -> None:
    shown = (REFERENCE / "configuration.md").read_text().split("```toml\n")[1].split("```")[0]
    file = tmp_path / "legato.toml"
    file.write_text(shown)
    assert load(file, environment={}) == load(store=Path("store"), environment={})
