"""Context managers as decorators: a range or a stage around each call of a function of any kind."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def decorate(manager: AbstractContextManager[Any], function: F) -> F:
    """Wraps a function; a generator or coroutine is covered from its first resumption to its end."""
    if isinstance(function, (staticmethod, classmethod)):
        raise TypeError(f"put {manager!r} below @{type(function).__name__}, not above it")
    if isinstance(function, type) or not callable(function):
        raise TypeError(f"{manager!r} decorates functions, not {function!r}; decorate its methods instead")
    return cast(F, _wrapper(manager, function))


def _wrapper(manager: AbstractContextManager[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def async_generator(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            with manager:
                inner = function(*args, **kwargs)
                try:
                    item = await inner.__anext__()
                    while True:
                        try:
                            sent = yield item
                        except GeneratorExit:
                            await inner.aclose()
                            raise
                        except BaseException as error:  # noqa: BLE001 - all of them are the inner generator's to handle
                            item = await inner.athrow(error)
                        else:
                            item = await inner.asend(sent)
                except StopAsyncIteration:
                    return

        return async_generator

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with manager:
                return await function(*args, **kwargs)

        return coroutine

    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            with manager:
                return (yield from function(*args, **kwargs))

        return generator

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with manager:
            return function(*args, **kwargs)

    return plain
