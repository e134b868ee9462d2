"""Writer of the public classes of `legato.client` and `legato.client.aio`, from the steps of both.

What a call does is written once, as steps (`src/legato/client/calls`). The public classes are ordinary ones, with
`def` and `async def`, types and documentation, so that editors, type checkers and mocks see what is true. This tool
writes them; `--check` says whether they are as it would write them.

    python -m tools.make_faces [--check]
"""

from __future__ import annotations

import argparse
import ast
import builtins
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tools import face_bodies as bodies

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "src" / "legato" / "client"
STEPS = CLIENT / "calls"
RUFF = [sys.executable, "-m", "ruff"]

WAITS, HANDS, MAKES, OPENS, PLAIN = "waits", "hands", "makes", "opens", "plain"
"""How a method is made.

WAITS: it waits, and returns what its steps return.
HANDS: it returns a message, which must not be lost if a signal handler raises; made of the steps without the last one.
MAKES: it returns a consumer, which must not be lost either; in asyncio it can be entered with `async with`.
OPENS: it returns something else that in asyncio can be entered.
PLAIN: it waits for nothing, and returns what only the public class can name.
"""
HANDING_STEPS = {
    "receive": "_getting",
    "receive_no_wait": "_getting_now",
    "receive_body": "_getting_body",
    "receive_body_no_wait": "_getting_body_now",
}
"""Steps without the one that leaves a message to the caller."""
TAKES_SECONDS = ("receive", "receive_body")
"""They have a parameter `timeout` that nothing may be given for: whoever does is told of `timeout_s`."""


class Face(NamedTuple):
    """A public class."""

    name: str
    steps: tuple[str, ...]
    """The modules with its steps, the class of the first one being its base."""
    base: str
    parameters: str = ""
    """Of the base."""
    parts: Mapping[str, str] = MappingProxyType({})
    """Attributes of the base that have further steps, and the modules of their classes."""
    methods: tuple[tuple[str, str], ...] = ()
    """Names, and how each is made."""
    types: Mapping[str, str] = MappingProxyType({})
    """What stands for the type variables of the steps."""
    before: tuple[str, str] = ("", "")
    """What comes before its methods, written by hand: for threads, for asyncio."""
    after: tuple[str, str] = ("", "")
    """What comes after them."""
    by_hand: Mapping[str, tuple[str, str]] = MappingProxyType({})
    """Bodies written by hand; an empty one is made."""
    overloads: Mapping[str, str] = MappingProxyType({})
    """Written by hand, of methods whose result depends on an argument."""
    closes: bool = True
    """Whether it can be used with `with`."""


class Module(NamedTuple):
    """A module with public classes, in both worlds."""

    name: str
    subject: tuple[str, str]
    faces: tuple[Face, ...]
    exports: tuple[str, ...] = ()
    """What it gives besides, for threads only."""
    constants: tuple[str, str] = ("", "")
    """For threads, for asyncio."""


def _all(kind: str, names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, kind) for name in names.split())


_SESSION_PARTS = {
    "_factory": "session_factory",
    "_messages": "session_messages",
    "_transactions": "session_transactions",
    "_acknowledgements": "session_acknowledgements",
}
_OF_SESSIONS = {"_Producer": "MessageProducer", "_Consumer": "MessageConsumer", "_Browser": "QueueBrowser"}
_OF_CONTEXTS = {"_Producer": "JMSProducer", "_Consumer": "JMSConsumer", "_Browser": "QueueBrowser"}
_CREATE_CONSUMERS = "create_consumer create_durable_consumer"
_CREATE_SHARED = "create_shared_consumer create_shared_durable_consumer"
_CREATE_TEMPORARY = "create_temporary_queue create_temporary_topic"
_EXPECTING = {"receive": bodies.RECEIVE_OVERLOADS, "receive_no_wait": bodies.RECEIVE_NO_WAIT_OVERLOADS}
_REQUESTOR = _all(WAITS, "request close")

MODULES = (
    Module(
        "producer",
        (
            "Producers: send messages one by one, each confirmed, or many in flight with a completion listener.",
            "Producers for asyncio: send messages one by one, or many in flight with a completion listener.",
        ),
        (
            Face(
                "MessageProducer",
                ("producer_steps",),
                "ProducerSteps",
                methods=_all(WAITS, "send flush close"),
                by_hand={"send": (bodies.SEND, "")},
            ),
        ),
    ),
    Module(
        "consumer",
        (
            "Consumers: receive messages one by one, by iteration, or with a listener.",
            "Consumers for asyncio: receive messages one by one, by iteration, or with a listener.",
        ),
        (
            Face(
                "MessageConsumer",
                ("consumer_steps", "consumer_work"),
                "ConsumerSteps",
                methods=(
                    *_all(HANDS, "receive receive_no_wait receive_body receive_body_no_wait"),
                    ("close", WAITS),
                ),
                by_hand={"receive": (bodies.RECEIVE, bodies.RECEIVE_IN_TASK)},
                overloads=_EXPECTING,
                before=("", "_in_a_row = 0\n"),
                after=(bodies.ITERATE_CONSUMER, bodies.ITERATE_CONSUMER_IN_TASK),
            ),
        ),
        exports=("MessageListener",),
        constants=(bodies.MESSAGE_VARIABLE, bodies.MESSAGE_VARIABLE + bodies.TURNS),
    ),
    Module(
        "browser",
        (
            "Queue browsers: look at messages without consuming them.",
            "Queue browsers for asyncio: look at messages without consuming them.",
        ),
        (
            Face(
                "QueueBrowser",
                ("browser_steps",),
                "BrowserSteps",
                methods=_all(WAITS, "close"),
                after=(bodies.ITERATE_BROWSER, bodies.ITERATE_BROWSER_IN_TASK),
            ),
        ),
    ),
    Module(
        "session",
        (
            "Sessions: send and receive in one thread at a time; acknowledgement, transactions, recovery.",
            "Sessions for asyncio: send and receive in one task at a time.",
        ),
        (
            Face(
                "Session",
                ("session_steps",),
                "SessionSteps",
                "[MessageProducer, MessageConsumer, QueueBrowser]",
                _SESSION_PARTS,
                (
                    *_all(PLAIN, "create_queue create_topic"),
                    ("create_producer", OPENS),
                    *_all(MAKES, f"{_CREATE_CONSUMERS} create_durable_subscriber {_CREATE_SHARED}"),
                    ("create_browser", PLAIN),
                    *_all(PLAIN, "create_message create_text_message create_json_message create_bytes_message"),
                    *_all(PLAIN, "create_map_message create_stream_message create_object_message"),
                    *_all(WAITS, f"unsubscribe {_CREATE_TEMPORARY} commit commit_outcome rollback"),
                    *_all(PLAIN, "replay reject give_back"),
                    *_all(WAITS, "recover acknowledge_all close"),
                ),
                types=_OF_SESSIONS,
                before=(bodies.SESSION_TYPES, bodies.SESSION_TYPES),
            ),
        ),
    ),
    Module(
        "context",
        ("The simplified API (Jakarta Messaging 2.8).", "The simplified API, with asyncio (Jakarta Messaging 2.8)."),
        (
            Face(
                "JMSProducer",
                ("jms_producer_steps",),
                "JMSProducerSteps",
                methods=_all(WAITS, "send"),
                closes=False,
            ),
            Face(
                "JMSConsumer",
                ("jms_consumer_steps",),
                "JMSConsumerSteps",
                methods=(
                    *_all(HANDS, "receive receive_no_wait receive_body receive_body_no_wait"),
                    ("close", WAITS),
                ),
                overloads=_EXPECTING,
                after=(bodies.ITERATE_CONSUMER, bodies.ITERATE_CONSUMER_IN_TASK),
            ),
            Face(
                "JMSContext",
                ("context_steps",),
                "ContextSteps",
                "[JMSProducer, JMSConsumer, QueueBrowser]",
                methods=(
                    ("create_producer", PLAIN),
                    *_all(MAKES, f"{_CREATE_CONSUMERS} {_CREATE_SHARED}"),
                    ("create_browser", PLAIN),
                    *_all(WAITS, f"{_CREATE_TEMPORARY} unsubscribe set_client_id stop commit commit_outcome rollback"),
                    *_all(WAITS, "recover acknowledge acknowledge_all close"),
                ),
                types=_OF_CONTEXTS,
                before=(bodies.CONTEXT_TYPES, bodies.CONTEXT_TYPES),
            ),
        ),
        constants=(bodies.MESSAGE_VARIABLE, bodies.MESSAGE_VARIABLE),
    ),
    Module(
        "connection",
        (
            "Connections to a broker and its backups, and their factory.",
            "Connections for asyncio to a broker and its backups, and their factory.",
        ),
        (
            Face(
                "Connection",
                ("connection_steps",),
                "ConnectionSteps",
                "[Session]",
                methods=(("create_session", PLAIN), *_all(WAITS, "set_client_id stop close")),
                types={"_Session": "Session"},
                before=(bodies.CONNECTION_TYPES, bodies.CONNECTION_TYPES_IN_TASK),
                after=(bodies.CLIENT_ID, ""),
            ),
            Face(
                "ConnectionFactory",
                ("connection_steps",),
                "FactorySteps",
                "[Connection, JMSContext]",
                methods=_all(OPENS, "create_connection create_context"),
                types={"_Connection": "Connection", "_Context": "JMSContext"},
                before=(bodies.FACTORY_TYPES, bodies.FACTORY_TYPES),
                closes=False,
            ),
        ),
        exports=("ExceptionListener", "FailoverListener"),
    ),
    Module(
        "requestor",
        (
            "Requestors: send a request and wait for its reply over a temporary destination.",
            "Requestors for asyncio: send a request and await its reply over a temporary destination.",
        ),
        (
            Face("QueueRequestor", ("requestor_steps",), "QueueRequestorSteps", methods=_REQUESTOR),
            Face("TopicRequestor", ("requestor_steps",), "TopicRequestorSteps", methods=_REQUESTOR),
        ),
    ),
)

SHARED_NAMES = {
    "TypeVar": "typing",
    "overload": "typing",
    "drive": "legato.client.steps",
    "leave_block": "legato.client.steps",
    "mend": "legato.client.steps",
    "get_ident": "threading",
    "TracebackType": "types",
    "in_flight": "legato.client.calls.leaving",
    "cast": "typing",
    "Iterator": "collections.abc",
    "AsyncIterator": "collections.abc",
    "Message": "legato.client.messages.message",
    "ThreadTurn": "legato.client.calls.turn",
    "Threads": "legato.client.calls.world",
    "wrong_timeout": "legato.client.calls.consumer_steps",
}
ASYNCIO_NAMES = {
    "drive": "legato.client.aio.steps",
    "leave_block": "legato.client.aio.steps",
    "Opening": "legato.client.aio.steps",
    "EventLoop": "legato.client.aio.world",
    "TemporaryQueue": "legato.client.aio.destinations",
    "TemporaryTopic": "legato.client.aio.destinations",
}


# -- what the steps say --------------------------------------------------------------------------------------


@cache
def _module(name: str) -> tuple[str, ast.Module]:
    text = (STEPS / f"{name}.py").read_text()
    return text, ast.parse(text)


def _imports(name: str) -> dict[str, str]:
    """Where a module has its names from; those that it defines itself included."""
    _, tree = _module(name)
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module not in (None, "__future__"):
            found.update({alias.name: str(node.module) for alias in node.names})
    for statement in tree.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Name):
            found[target.id] = f"legato.client.calls.{name}"
        elif isinstance(statement, ast.ClassDef | ast.FunctionDef):
            found[statement.name] = f"legato.client.calls.{name}"
    return found


def _class(face: Face) -> ast.ClassDef:
    _, tree = _module(face.steps[0])
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == face.base)


def _steps_of(face: Face, method: str) -> tuple[str, str, ast.FunctionDef]:
    """A method's steps, the text that they are in, and whose they are: `self`, or one of its parts."""
    for owner, name, names in [
        *(("self", name, (method, f"_{method}")) for name in face.steps),
        *((f"self.{part}", name, (method,)) for part, name in face.parts.items()),
    ]:
        text, tree = _module(name)
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        anywhere = len(face.steps) > 1 or owner != "self"
        for kind in (each for each in classes if anywhere or each.name == face.base or _is_base(face, each)):
            for node in kind.body:
                if isinstance(node, ast.FunctionDef) and node.name in names:
                    return owner, text, node
    raise LookupError(f"{face.name}.{method} has no steps in {face.steps} or {list(face.parts)}")


def _is_base(face: Face, kind: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == kind.name for base in _class(face).bases)


def _doc(text: str, node: ast.FunctionDef | ast.ClassDef) -> str:
    """The documentation as it is written."""
    first = node.body[0]
    assert isinstance(first, ast.Expr)
    written = ast.get_source_segment(text, first)
    assert written is not None
    return written


class _Types(ast.NodeTransformer):
    """Puts public types in place of type variables."""

    def __init__(self, types: Mapping[str, str]) -> None:
        self._types = types

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._types.get(node.id, node.id))


# -- what the faces say --------------------------------------------------------------------------------------


def _method(face: Face, name: str, kind: str, *, asyncio: bool) -> str:
    owner, text, steps = _steps_of(face, name)
    returned = steps.returns
    assert returned is not None
    if kind != PLAIN and isinstance(returned, ast.Subscript):
        returned = returned.slice  # of `Steps[...]`
    value = ast.unparse(_Types(face.types).visit(ast.parse(ast.unparse(returned), mode="eval").body))
    passed = [each.arg for each in steps.args.args[1:]] + [f"{each.arg}={each.arg}" for each in steps.args.kwonlyargs]
    whose = "super()" if kind == PLAIN and owner == "self" else owner
    call = f"{whose}.{steps.name}({', '.join(passed)})"
    if steps.name == "_close":
        call = "self._leave(in_flight())"
    arguments, refusal = ast.unparse(steps.args), ""
    if name in TAKES_SECONDS:
        arguments += ", *, timeout: None = None"
        refusal = f'if timeout is not None:\n    raise wrong_timeout("{name}", timeout)\n'
    opening = asyncio and kind in (MAKES, OPENS)
    awaited = asyncio and kind not in (MAKES, OPENS, PLAIN)
    head = f"{'async ' if awaited else ''}def {name}({arguments})"
    head += f" -> {f'Opening[{value}]' if opening else value}:\n"
    body = refusal + (face.by_hand.get(name, ("", ""))[asyncio] or _body(name, kind, call, value, asyncio=asyncio))
    overloads = face.overloads.get(name, "")
    head = (overloads.replace("def ", "async def ") if awaited else overloads) + head
    documentation = _doc(text, steps) if ast.get_docstring(steps) else ""
    return head + textwrap.indent(f"{documentation}\n{body}", "    ").replace("        \n", "\n")


def _body(name: str, kind: str, call: str, value: str, *, asyncio: bool) -> str:
    returning = "" if value == "None" else "return "
    if kind == PLAIN:
        return f"{returning}{call}\n"
    if asyncio:
        if kind in (MAKES, OPENS):
            return f"return Opening({call})\n"
        if value in ASYNCIO_NAMES:  # the steps know the type of the other world
            return f"return cast({value}, await drive({call}))\n"
        return f"{returning}await drive({call})\n"
    if kind == HANDS:
        arguments = call.partition("(")[2]
        steps = [
            "end = self._end",
            f"value = drive(self.{HANDING_STEPS[name]}({arguments})",
            "# One step: no signal handler runs between its halves.",
            "end.handing = None; return value  # fmt: skip  # noqa: E702",
        ]
    elif kind == MAKES:
        making = "self._members.making" if call.startswith("self._factory.") else "self._making"
        steps = [
            f"consumer = drive({call})",
            "# One step: no signal handler runs between its halves.",
            f"{making} = None; return consumer  # fmt: skip  # noqa: E702",
        ]
    else:
        steps = [f"{returning}drive({call})"]
    return _mended(steps)


def _mended(steps: list[str]) -> str:
    lines = "".join(f"    {line}\n" for line in steps)
    return f"try:\n{lines}except BaseException as interruption:\n    mend(self, interruption)\n    raise\n"


_EXIT = "self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None"


def _entering(face: Face, *, asyncio: bool) -> str:
    prefix, coroutine, await_ = ("a", "async ", "await ") if asyncio else ("", "", "")
    return (
        f"{coroutine}def __{prefix}enter__(self) -> {face.name}:\n    return self\n\n"
        f"{coroutine}def __{prefix}exit__({_EXIT}) -> None:\n    {await_}leave_block(self, error)\n"
    )


def _face(face: Face, *, asyncio: bool) -> str:
    text, _ = _module(face.steps[0])
    kind = _class(face)
    if ast.get_docstring(kind) is None:
        bases = [base.id for base in kind.bases if isinstance(base, ast.Name)]
        kind = _class(face._replace(base=bases[0]))
    parts = [textwrap.dedent("    " + _doc(text, kind)) + "\n", face.before[asyncio]]
    parts += [_method(face, name, made, asyncio=asyncio) for name, made in face.methods]
    parts += [face.after[asyncio], _entering(face, asyncio=asyncio) if face.closes else ""]
    return f"class {face.name}({face.base}{face.parameters}):\n" + textwrap.indent(
        "\n".join(part for part in parts if part), "    "
    )


def written(module: Module, *, asyncio: bool) -> str:
    """The text of a module."""
    classes = "\n\n".join(_face(face, asyncio=asyncio) for face in module.faces)
    modules = [each for face in module.faces for each in (*face.steps, *face.parts.values())]
    sources = {name: where for each in modules for name, where in _imports(each).items()}
    package = "legato.client.aio" if asyncio else "legato.client"
    public = {face.name: f"{package}.{other.name}" for other in MODULES for face in other.faces}
    here = {face.name for face in module.faces}
    known = {**sources, **SHARED_NAMES, **(ASYNCIO_NAMES if asyncio else {}), **public}
    constants = module.constants[asyncio]
    tree = ast.parse(constants + classes)
    exports = () if asyncio else module.exports
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | set(exports)
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)} | {"interruption"}
    parts = " and the parts of a session" if module.faces[0].parts else ""
    lines = [
        f'"""{module.subject[asyncio]}\n',
        f"Do not edit: `tools/make_faces.py` writes this from `calls/{module.faces[0].steps[0]}.py`{parts}.",
        '"""\n',
        "from __future__ import annotations\n",
    ]
    for name in sorted(names - here - bound - set(dir(builtins))):
        lines.append("import asyncio" if name == "asyncio" else f"from {known[name]} import {name}")
    listed = sorted([*here, *exports]) if exports else []
    lines += [f"\n__all__ = {listed!r}\n" if listed else "", constants, "", classes]
    return _formatted("\n".join(lines))


def _formatted(text: str) -> str:
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        run = subprocess.run(
            [*RUFF, *command, "--config", str(ROOT / "pyproject.toml"), "--stdin-filename", str(CLIENT / "x.py"), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode or not run.stdout:
            raise RuntimeError(f"ruff {command[0]}: {run.stdout}{run.stderr}\n{text}")
        text = run.stdout
    return text


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if something would be written")
    check = parser.parse_args().check
    stale = 0
    for module in MODULES:
        for asyncio in (False, True):
            path = CLIENT / ("aio" if asyncio else ".") / f"{module.name}.py"
            text = written(module, asyncio=asyncio)
            if path.read_text() == text:
                continue
            stale += 1
            if check:
                print(f"{path.relative_to(ROOT)} is not what tools/make_faces.py writes: run `make faces`.")
            else:
                path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
