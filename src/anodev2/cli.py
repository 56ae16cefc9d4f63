"""The command line, made from the functions of `commands.py`.

Every option can also come from `--config FILE`; `--print_config` prints them all. Exit status
0 done, 1 some runs failed, 2 wrong usage, 130 interrupted; errors are one line on standard
error.
"""

import re
import sys
from argparse import Action, RawDescriptionHelpFormatter
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import version
from inspect import signature
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace

from anodev2.commands import COMMANDS, WAYS
from anodev2.experiment.failure import RunFailure
from anodev2.usage import UsageError


class Formatter(DefaultHelpFormatter, RawDescriptionHelpFormatter):
    """Keeps the lines of the list above, and names types as one writes them."""

    def _expand_help(self, action: Action) -> str:
        return re.sub(r"<class '(\w+)'>", r"\1", super()._expand_help(action))


MOVING = ("train", "compare")
"""Commands whose help lists the ways to move."""


class OneLineParser(ArgumentParser):
    """A parser whose errors are one line that names the nearest option of the command given."""

    known: frozenset[str]

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        text = _plain(" ".join(message.split()))
        print(f"anodev2: {text}{_nearest(text, self.known)}; see --help", file=sys.stderr)
        sys.exit(2)


KINDS = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}


def _plain(message: str) -> str:
    """The parser's words for a value of the wrong type, in those of all other mistakes."""
    found = re.match(
        r'Parser key "(?P<name>\w+)": (?P<why>.*?) (?:Given value type: .*)?'
        r"(?:Given value|Got value): (?P<given>.*)",
        message,
    )
    if not found:
        return message
    kinds = dict.fromkeys(map(KINDS.get, re.findall(r"<class '(\w+)'>", found["why"])))
    expected = " or ".join(kind for kind in kinds if kind)
    return f"{found['name']} must be {expected}, got {found['given']!r}" if expected else message


def _words(given: Sequence[str]) -> frozenset[str]:
    """What there is to say: options of the command that is given, else commands and options."""
    chosen = next((COMMANDS[token] for token in given if token in COMMANDS), None)
    names = {
        n for c in ([chosen] if chosen else COMMANDS.values()) for n in signature(c).parameters
    }
    return frozenset(names if chosen else {*names, *COMMANDS})


def _nearest(message: str, known: frozenset[str]) -> str:
    """A hint for the first word of an error that is close to a command or an option."""
    for word in re.findall(r"(?:arguments: |option '|choice: ')([\w.-]+)", message):
        name = word.lstrip("-")
        close = get_close_matches(name, known - {name}, n=1)
        if close and name not in known:
            return f"; did you mean {word.removesuffix(name) + close[0]!r}?"
    return ""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status."""
    command, options = _parse(arguments)
    try:
        status = COMMANDS[command](**options)
    except UsageError as error:
        status = _complain(str(error), 2)
    except RunFailure as error:
        status = _complain(str(error), 1)
    except ModuleNotFoundError as error:
        missing = f"{error.name} is not installed: pip install 'anodev2[train]'"
        status = _complain(missing, 2)
    except KeyboardInterrupt as interruption:
        again = "--resume" if command == "train" else "the same command"
        after = (
            f"; {again} goes on after the last finished epoch"
            if interruption.args or command == "reproduce"
            else ""
        )
        status = _complain(f"interrupted{after}", 130)
    sys.stdout.flush()
    sys.exit(status)


def _parse(arguments: list[str] | None) -> tuple[str, dict[str, Any]]:
    given = [_underscored(t) for t in (sys.argv[1:] if arguments is None else arguments)]
    parser = OneLineParser(
        prog="anodev2",
        description="Neural networks whose weights move: train and compare them.",
        version=version("anodev2"),
        formatter_class=Formatter,
    )
    parser.known = _words(given)
    commands = parser.add_subcommands(dest="command")
    for name, function in COMMANDS.items():
        summary = (function.__doc__ or "").splitlines()[0]
        sub = OneLineParser(description=summary, epilog=WAYS if name in MOVING else None)
        sub.add_argument("--config", action="config", help="YAML file with any of these options")
        sub.add_function_arguments(function, as_group=False, as_positional=True, skip={"resume"})
        if name == "train":
            sub.add_argument("--resume", action="store_true", help="continue the run in the folder")
        sub.known = _words(given)
        commands.add_subcommand(name, sub, help=summary)
    parsed: Namespace = parser.parse_args(given)
    options = parsed[parsed.command].as_dict()
    options.pop("config")
    return parsed.command, options


def _underscored(token: str) -> str:
    """An option spelled with dashes, as in --num-nodes=2, under its name."""
    name, equals, value = token.partition("=")
    if not name.startswith("--"):
        return token
    return "--" + name[2:].replace("-", "_") + equals + value


def _complain(text: str, status: int) -> int:
    print(f"anodev2: {text}", file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
