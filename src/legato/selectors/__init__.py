"""Message selectors: the conditions on header fields and properties of Jakarta Messaging 3.8.1."""

from legato.selectors.selector import Selector, compile_selector

__all__ = ["Selector", "compile_selector"]
