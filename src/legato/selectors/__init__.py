"""Message selectors: the conditions on header fields and properties of Jakarta Messaging 3.8.1."""

from legato.selectors.selector import Selector, compile_selector
from legato.selectors.syntax import prepare

__all__ = ["Selector", "compile_selector", "prepare"]
