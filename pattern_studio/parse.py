"""Text -> Pattern. The text is read with `ast` and a whitelist; nothing in it is ever evaluated."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from .errors import StudioError
from .expr import And, Or, Pattern
from .grid import Grid
from .leaf import block
from .patterns import PRIMITIVES
from .presets import PRESETS

MAX_TEXT = 250_000  # characters: what a slow core reads within a second; longer layouts travel as files

VALUES: dict[str, Callable[..., Any]] = {"grid": Grid}  # words that make an argument, not a pattern

_SPAN = re.compile(r"(?<![\w.:])(\d[\d_]*)\s*:\s*(\d[\d_]*)(?:\s*:\s*(\d[\d_]*))?(?![\w.])")
_RUN_ON = re.compile(r"(?<![\w.])[\d_]*\d[^\W\d_]\w*")
_OPERATORS: dict[type[ast.operator], Callable[[Pattern, Any], Pattern]] = {
    ast.Sub: lambda a, b: a - b,
    ast.BitXor: lambda a, b: a ^ b,
    ast.RShift: lambda a, b: a >> b,
}


class ParseError(StudioError):
    """A text that is no pattern. `column` (0-based) points at the place, `problem` says what is wrong."""

    def __init__(self, problem: str, text: str, column: int) -> None:
        self.problem, self.text, self.column = problem, text, column
        near = " ".join(text[column : column + 24].split())
        super().__init__(f"column {column + 1}{f', at {near!r}' if near else ''}: {problem}")


def vocabulary() -> dict[str, Any]:
    """Every word of the language, primitives and presets: a Pattern, or what makes one when called."""
    return {**PRIMITIVES, **PRESETS}


@lru_cache(maxsize=256)
def parse(text: str) -> Pattern:
    """Read a pattern from its text: the words of `vocabulary()`, `& | ~ - ^ >>`, `.T`, `.within(docs)`.

    `a:b` and `a:b:c` between numbers stand for `range(a, b)` and `range(a, b, c)`. Raises ParseError,
    which points at the place. The result prints as canonical text: `parse(str(p)) == p`.

    >>> parse("causal&(window(63,0)|sink(4))")  # doctest: +ELLIPSIS
    And(children=(Causal(), Or(children=(Window(left=63, right=0), Sink(n=4)))))
    """
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise StudioError(f"a pattern's text must be a string, got {type(text).__name__}")
        self.text = text
        # `0:8` becomes `range(0, 8)`; `edits` leads positions back to the text as it was written.
        self.edits: list[tuple[int, int]] = []
        self.lines = [""]

    def read(self) -> Pattern:
        if len(self.text) > MAX_TEXT:
            raise StudioError(f"a pattern's text has at most {MAX_TEXT:,} characters, got {len(self.text):,}")
        if not self.text.strip():
            raise ParseError("expected a pattern, such as causal & window(255, 0); got nothing", self.text, 0)
        if run_on := _RUN_ON.search(self.text):
            raise ParseError("a number runs into a word; write whole numbers in decimal", self.text, run_on.start())
        source = self._expanded()
        self.lines = source.split("\n")
        try:
            tree = ast.parse(source, mode="eval")
            return self._pattern(tree.body)
        except ParseError:
            raise
        except SyntaxError as error:
            raise self._syntax(error) from None
        except (RecursionError, MemoryError):
            raise ParseError("nested too deeply to be read; split it into several patterns", self.text, 0) from None
        except (ValueError, UnicodeError) as error:
            raise ParseError(f"not readable as text: {error}", self.text, 0) from None

    def _expanded(self) -> str:
        # A pattern may be spread over lines; inside one pair of brackets Python takes it as one expression.
        pieces, last, shift = ["("], 0, 1
        for found in _SPAN.finditer(self.text):
            inner = ", ".join(number for number in found.groups() if number)
            new = f"range({inner})"
            pieces += [self.text[last : found.start()], new]
            self.edits.append((found.start() + shift, len(new) - len(found.group())))
            shift += len(new) - len(found.group())
            last = found.end()
        return "".join([*pieces, self.text[last:], "\n)"])

    def _original(self, line: int, column: int) -> int:
        """Offset in the text as written of a (1-based line, column in characters) of the source."""
        offset = sum(len(part) + 1 for part in self.lines[: line - 1]) + column
        moved = 1
        for at, growth in self.edits:
            if offset <= at:
                break
            moved += growth
        return max(0, min(offset - moved, len(self.text)))

    def _fail(self, node: ast.AST, problem: str) -> ParseError:
        line = self.lines[node.lineno - 1]  # type: ignore[attr-defined]
        column = len(line.encode()[: node.col_offset].decode(errors="ignore"))  # type: ignore[attr-defined]
        return ParseError(problem, self.text, self._original(node.lineno, column))  # type: ignore[attr-defined]

    def _syntax(self, error: SyntaxError) -> ParseError:
        line = min(error.lineno or 1, len(self.lines))
        column = self._original(line, max((error.offset or 1) - 1, 0))
        return ParseError(f"not a pattern expression ({error.msg})", self.text, column)

    def _pattern(self, node: ast.expr) -> Pattern:
        match node:
            case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
                return self._chain(node)
            case ast.BinOp(op=op) if type(op) in _OPERATORS:
                left = self._pattern(node.left)
                right = self._number(node.right) if isinstance(op, ast.RShift) else self._pattern(node.right)
                return self._made(node, lambda: _OPERATORS[type(op)](left, right))
            case ast.UnaryOp(op=ast.Invert()):
                return ~self._pattern(node.operand)
            case ast.Attribute(attr="T"):
                return self._pattern(node.value).T
            case ast.Name():
                return self._word(node)
            case ast.Call():
                return self._call(node)
        raise self._fail(node, f"expected a pattern, got {_what(node)}")

    def _chain(self, node: ast.BinOp) -> Pattern:
        # Long unions lean left; walking them in a loop keeps the depth free for real nesting.
        kind, terms, left = type(node.op), [], node
        while isinstance(left, ast.BinOp) and type(left.op) is kind:
            terms.append(left.right)
            left = left.left
        parts: list[Pattern] = []
        operator = And if kind is ast.BitAnd else Or
        for term in [left, *reversed(terms)]:
            part = self._pattern(term)
            parts += part.children if isinstance(part, operator) else (part,)
        return operator(tuple(parts))

    def _lookup(self, node: ast.Name) -> Any:
        words = vocabulary()
        if node.id in words:
            return words[node.id]
        if node.id in VALUES:
            raise self._fail(node, f"{node.id}(...) makes an argument, as in axial({node.id}(...)), and is no pattern")
        close = difflib.get_close_matches(node.id, [*words, *VALUES], 1)
        hint = f"did you mean {close[0]!r}?" if close else f"the words are {', '.join(words)}"
        raise self._fail(node, f"unknown word {node.id!r}; {hint}")

    def _word(self, node: ast.Name) -> Pattern:
        word = self._lookup(node)
        if not isinstance(word, Pattern):
            raise self._fail(node, f"{node.id} needs its arguments: {node.id}{_parameters(word)}")
        return word

    def _call(self, node: ast.Call) -> Pattern:
        match node.func:
            case ast.Attribute(attr="within"):
                if len(node.args) != 1 or node.keywords:
                    raise self._fail(node, "within takes one argument: pattern.within(docs)")
                child, docs = self._pattern(node.func.value), self._pattern(node.args[0])
                return self._made(node.args[0], lambda: child.within(docs))
            case ast.Attribute():
                raise self._fail(node, f"patterns have .T and .within(docs), no .{node.func.attr}()")
            case ast.Name():
                maker = self._lookup(node.func)
            case _:
                raise self._fail(node, "only the words of the language can be called")
        if isinstance(maker, Pattern):
            raise self._fail(node, f"{node.func.id} takes no arguments: write it without brackets")
        return self._applied(node, node.func.id, maker)

    def _applied(self, node: ast.Call, word: str, maker: Callable[..., Any]) -> Any:
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            raise self._fail(node, "arguments are written out; * and ** are not part of the language")
        if len({k.arg for k in node.keywords}) < len(node.keywords):
            raise self._fail(node, f"{word} is given one argument twice")
        args = [self._argument(a) for a in node.args]
        options = {k.arg: self._argument(k.value) for k in node.keywords if k.arg}
        try:
            inspect.signature(maker).bind(*args, **options)
        except TypeError as error:
            raise self._fail(node, f"{word}{_parameters(maker)}: {error}") from None
        return self._made(node, lambda: maker(*args, **options))

    def _made(self, node: ast.AST, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except ParseError:
            raise
        except StudioError as error:
            raise self._fail(node, str(error)) from None

    def _argument(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bool() | int()) | ast.UnaryOp(op=ast.USub()):
                return node.value if isinstance(node, ast.Constant) else self._number(node)
            case ast.Tuple() | ast.List():
                return tuple(self._argument(e) for e in node.elts)
            case ast.Dict():
                if any(key is None for key in node.keys):
                    raise self._fail(node, "** is not part of the language")
                keys = [self._argument(k) for k in node.keys if k is not None]
                for key, at in zip(keys, node.keys, strict=True):
                    if not isinstance(key, (int, range)) or isinstance(key, bool):
                        raise self._fail(at or node, "expected a number or a range such as 0:8")
                if len(set(keys)) < len(keys):
                    raise self._fail(node, "one key is given twice")
                return dict(zip(keys, (self._pattern(v) for v in node.values), strict=True))
            case ast.Name(id="block"):
                return block
            case ast.Call(func=ast.Name(id="range")):
                numbers = [self._number(a) for a in node.args]
                if node.keywords or not 1 <= len(numbers) <= 3 or (len(numbers) == 3 and numbers[2] == 0):
                    raise self._fail(node, "expected range(stop), range(start, stop) or range(start, stop, step)")
                return range(*numbers)
            case ast.Call(func=ast.Name(id=word)) if word in VALUES:
                return self._applied(node, word, VALUES[word])
        return self._pattern(node)

    def _number(self, node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return value
            case ast.UnaryOp(op=ast.USub()):
                return -self._number(node.operand)
        raise self._fail(node, f"expected a whole number, got {_what(node)}")


def _parameters(maker: Any) -> str:
    """The parameters of a word as a user would write them."""
    parameters = inspect.signature(maker).parameters.values()
    shown = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
    return f"({', '.join(shown)})"


def _what(node: ast.AST) -> str:
    match node:
        case ast.Constant():
            return f"{node.value!r}"[:40]
        case ast.BoolOp():
            return "'and' or 'or' (use & and |)"
        case ast.UnaryOp(op=ast.Not()):
            return "'not' (use ~)"
        case ast.Attribute():
            return f".{node.attr} (patterns have .T and .within(docs))"
        case ast.BinOp():
            return "an operator other than & | ~ - ^ >>"
    return {"Compare": "a comparison", "Lambda": "a lambda", "Tuple": "a tuple"}.get(
        type(node).__name__, type(node).__name__.lower()
    )
