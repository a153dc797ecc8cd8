"""The class of a handler's states: what is stored of an object of it, and how one is made of that again.

Owns that both go by the names of the fields, which are the table's columns. Aliases are for other people's JSON: a
pydantic model is read by its fields' names, whatever its own settings, and stored under them. A dataclass gets what its
constructor does not take set behind it. A class of which no object can be made again is refused when the decorator
names it, with the field: at the first event of an entity there is nothing to load yet, so that only its second would
fail. Pure; pydantic is imported by whoever has a class of it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from leasehold.errors import ConfigError

_CLASSES = 32  # in a worker of Spark each task may bring one of its own


@dataclass(frozen=True, slots=True)
class StateForm:
    """The names of what is stored of an object, what makes one from a row, and what makes a row from one."""

    fields: tuple[str, ...]
    load: Callable[[Mapping[str, Any]], Any]
    dump: Callable[[Any], dict[str, Any]]


def form_of(state: type) -> StateForm:
    """The form of a dataclass or a pydantic model. Raises `ConfigError` where it is neither, or cannot be loaded."""
    if not isinstance(state, type):  # also what the cache could not take
        raise _no_class(state)
    return _form_of(state)


@functools.lru_cache(_CLASSES)
def _form_of(state: type) -> StateForm:
    if dataclasses.is_dataclass(state):
        return _of_dataclass(state)
    if hasattr(state, "model_fields"):
        return _of_model(state)
    raise _no_class(state)


def _no_class(state: object) -> ConfigError:
    return ConfigError("state", state, "dict, a dataclass or a pydantic model", "Leave it out for dict")


def _of_dataclass(state: type) -> StateForm:
    fields = dataclasses.fields(state)
    names = tuple(one.name for one in fields)
    taken = [one.name for one in fields if one.init]
    rest = [name for name in names if name not in taken]
    make = _constructor(state, taken)

    def load(row: Mapping[str, Any]) -> Any:
        made = make({name: row[name] for name in taken if name in row})
        for name in rest:
            if name in row:
                object.__setattr__(made, name, row[name])  # frozen ones too
        return made

    return StateForm(names, load, lambda made: {name: getattr(made, name) for name in names})


def _constructor(state: type, taken: list[str]) -> Callable[[dict[str, Any]], Any]:
    """What makes an object of a dataclass from the fields that its constructor takes."""
    if aliased := _aliased(getattr(state, "__pydantic_fields__", {})):
        from pydantic import TypeAdapter

        adapter: Any = TypeAdapter(state)
        return _by_name(state, aliased, adapter.validate_python, getattr(state, "__pydantic_config__", {}))
    try:
        inspect.signature(state).bind(**dict.fromkeys(taken))
    except TypeError as error:
        raise ConfigError(
            "state",
            state.__name__,
            f"an object is made of its fields, and its constructor does not take them alone: {error}",
            "Give what it takes beside them a default, or mark what it does not take with field(init=False)",
        ) from error
    return lambda values: state(**values)


def _of_model(state: Any) -> StateForm:
    fields: Mapping[str, Any] = state.model_fields
    if getattr(state, "__pydantic_root_model__", False):
        raise ConfigError("state", state.__name__, "a RootModel has no named fields", "Give each column a field")
    taken = [name for name, one in fields.items() if not one.exclude]
    if lost := [name for name, one in fields.items() if one.exclude and one.is_required()]:
        raise ConfigError(
            "state",
            state.__name__,
            f"its field {lost[0]} is required, and excluded from what is stored",
            "Give it a default, or do not exclude it",
        )
    validate = state.model_validate
    if aliased := _aliased(fields):
        own = not getattr(state.__init__, "__pydantic_base_init__", False)
        validate = _by_name(state, aliased, validate, state.model_config, own=own)

    def dump(state: Any) -> dict[str, Any]:
        dumped: dict[str, Any] = state.model_dump(by_alias=False)
        return dumped | {name: getattr(state, name) for name in taken if name not in dumped}

    return StateForm(
        (*taken, *state.model_computed_fields),
        lambda row: validate({name: row[name] for name in taken if name in row}),
        dump,
    )


def _aliased(fields: Mapping[str, Any]) -> list[str]:
    """The fields that pydantic fills by another name than their own."""
    return [name for name, one in fields.items() if one.validation_alias not in (None, name)]


def _by_name(
    state: type, aliased: list[str], validate: Callable[..., Any], config: Mapping[str, Any], *, own: bool = False
) -> Callable[..., Any]:
    """What reads a class with aliases by its fields' names. Refuses one of which pydantic reads the aliases alone.

    `own` says that the class has a constructor of its own, which pydantic calls as its settings say.
    """
    if not own and "by_name" in inspect.signature(validate).parameters:
        return functools.partial(validate, by_alias=False, by_name=True)
    if config.get("populate_by_name") or config.get("validate_by_name"):
        return validate
    why = "its constructor is its own" if own else "this pydantic is older than 2.11"
    raise ConfigError(
        "state",
        state.__name__,
        f"its field {aliased[0]} has an alias, and it cannot be read by its fields' names, which are stored: {why}",
        "Set populate_by_name=True in its model_config",
    )
