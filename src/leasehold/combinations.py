"""Which stores, hubs and settings go together: the promises of each combination, and the refusal of what breaks one.

Owns the table `PROMISES`, which `docs/stores.md` shows to people. Pure: it is given what stores say of themselves
(`StoreFeatures`), or for a URL alone what the built-in ones say (`BUILT_IN`), and raises a `ConfigError` with those
that can. Whatever makes an instance asks here before it claims anything. Refused elsewhere, where one part alone can
tell: settings against each other (`leasehold.config`), durations of leases (`leasehold.stores.lease_rules`),
credentials (each backend's URL), and files on network file systems (`leasehold.backends`).

Not refused, because it works, only less well. A store without presence: whoever owns nothing is not counted until it
has claimed, and partitions are stolen, not asked for. A store without a clock: ages are told by what changes between
two listings, so that a dead owner is noticed one listing later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, unquote, urlsplit

from leasehold.backends import masked
from leasehold.config import OwnershipSettings
from leasehold.errors import ConfigError
from leasehold.stores.base import CheckpointStore, OwnershipStore, StoreFeatures

BUILT_IN: Mapping[str, StoreFeatures] = {
    "memory": StoreFeatures(shared=False, one_process=True),
    "sqlite": StoreFeatures(shared=False),
    "postgresql": StoreFeatures(shared=True),
    "redis": StoreFeatures(shared=True),
    "rediss": StoreFeatures(shared=True),
    "azblob": StoreFeatures(shared=True, batches=False, clock_granularity=1.0, official_layout=True),
    "aztable": StoreFeatures(shared=True, batches=False, official_layout=True),
}
"""What the stores of Leasehold can do, by the scheme of their URLs: the same as their own `features`."""

_SOCKETS = ("postgresql", "redis", "rediss")
"""Schemes whose URL need not name a host: the driver then takes a socket of this one."""
_THIS_HOST = re.compile(r"127\.[\d.]+|localhost|\[?::1\]?|/.*", re.IGNORECASE)
_ANYTHING = StoreFeatures(shared=True, official_layout=True)


@dataclass(frozen=True, slots=True)
class StorePlace:
    """One store of a combination. `name` is for people, and the same for two names of one place where that is known.

    `here`: its server is asked for on this host. Then all its instances are there too, or it is a proxy.
    """

    name: str
    features: StoreFeatures
    here: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """All that an instance is made of, as far as promises hang on it.

    mixed              the consumer group is shared with other SDKs' processors
    several_processes  it works in more processes than one even alone, as on Spark
    least_tasks        the least number of tasks that a batch is to be read in
    most_tasks         the most that the hub's partitions allow; None where a partition may be read by several
    """

    ownership: StorePlace
    checkpoints: StorePlace
    mixed: bool = False
    several_processes: bool = False
    settings: OwnershipSettings = field(default_factory=OwnershipSettings)
    least_tasks: int = 1
    most_tasks: int | None = None


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise. `broken` gives the setting and value that break it, or None.

    `sentence` is the promise as it stands in the docs, `why` what would happen. `other_store` says whether another
    store in its place may keep it, and `otherwise` what else to do.
    """

    sentence: str
    why: str
    broken: Callable[[Combination], tuple[str, object] | None]
    other_store: bool = False
    otherwise: str = ""

    def refusal(self, combination: Combination) -> ConfigError | None:
        """Why the combination is refused, None where it keeps this promise."""
        found = self.broken(combination)
        if found is None:
            return None
        remedies = [self.otherwise] if self.otherwise else []
        if self.other_store and (able := _able(combination, checkpoints=found[0] == "checkpoint_store")):
            remedies.insert(0, f"Name one of {', '.join(f'{scheme}://' for scheme in able)}")
        return ConfigError(*found, self.why, ", or ".join(remedies))


def _able(combination: Combination, *, checkpoints: bool) -> list[str]:
    """The stores that keep every promise in place of the one for checkpoints or for ownership; else, those for both."""
    places = {scheme: StorePlace(scheme, features) for scheme, features in BUILT_IN.items()}
    alone = {
        scheme: replace(combination, checkpoints=place) if checkpoints else replace(combination, ownership=place)
        for scheme, place in places.items()
    }
    both = {scheme: replace(combination, ownership=place, checkpoints=place) for scheme, place in places.items()}
    for tried in (alone, both):
        able = [scheme for scheme, one in tried.items() if all(promise.broken(one) is None for promise in PROMISES)]
        if able:
            return able
    return []


def check(combination: Combination) -> None:
    """Raise `ConfigError` for the first promise that the combination cannot keep."""
    for promise in PROMISES:
        if (refusal := promise.refusal(combination)) is not None:
            raise refusal


def place_of(store: OwnershipStore | CheckpointStore) -> StorePlace:
    """A store as a place. One that says nothing of itself is taken to keep every promise."""
    name = repr(store)
    url = re.search(r"\w+://[^'\")\s]*", name)
    return StorePlace(name, getattr(store, "features", _ANYTHING), url is not None and is_here(url[0]))


def place_at(url: str) -> StorePlace:
    """The store at a URL, as far as can be told without opening it."""
    scheme, name = url.partition("://")[0], masked(url)
    features = BUILT_IN.get(scheme, _ANYTHING)
    if features.official_layout and scheme in BUILT_IN:
        spelled = re.search(r"[?&](names=as-spelled)(?:&|$)", url)
        name = name.partition("?")[0] + (f"?{spelled[1]}" if spelled else "")  # the rest is how to get in
    return StorePlace(name, features, is_here(url))


def is_here(url: str) -> bool:
    """Whether a URL names a server of this host, or none. One whose host is masked is taken to be here: it may be."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False  # whoever opens it says what is wrong
    hosts = parts.netloc.rpartition("@")[2]
    if parts.scheme == "postgresql":  # libpq's option counts before the host at its place
        options = dict(parse_qsl(parts.query))
        hosts = options.get("hostaddr") or options.get("host") or hosts
    if not hosts or hosts == "***":
        return parts.scheme in _SOCKETS
    return all(_THIS_HOST.fullmatch(unquote(re.sub(r":\d*$", "", host))) for host in hosts.split(","))


def is_mixed(hub_url: str) -> bool:
    """Whether a hub's URL says that its consumer group is shared with other SDKs' processors."""
    return ("fleet", "mixed") in parse_qsl(urlsplit(hub_url).query)


def _reach(features: StoreFeatures) -> int:
    """How far apart those who use a store may be: 0 in one process, 1 on one host, 2 on any."""
    return 2 if features.shared else 0 if features.one_process else 1


def _first(
    combination: Combination, bad: Callable[[StoreFeatures], bool], *, checkpoints_only: bool = False
) -> tuple[str, object] | None:
    """The first store of the combination for which `bad` holds, as the setting that names it."""
    if not checkpoints_only and bad(combination.ownership.features):
        return "ownership_store", combination.ownership.name
    return ("checkpoint_store", combination.checkpoints.name) if bad(combination.checkpoints.features) else None


def _in_one_process(combination: Combination) -> tuple[str, object] | None:
    return _first(combination, lambda features: features.one_process) if combination.several_processes else None


def _checkpoints_nearer(combination: Combination) -> tuple[str, object] | None:
    reach = _reach(combination.ownership.features)
    if combination.ownership.here:  # its instances are on one host, or it is a proxy: it cannot be told
        reach = min(reach, 1)
    return _first(combination, lambda features: _reach(features) < reach, checkpoints_only=True)


def _unfenced(combination: Combination) -> tuple[str, object] | None:
    return _first(combination, lambda features: not features.fenced_checkpoints, checkpoints_only=True)


def _unheard(combination: Combination) -> tuple[str, object] | None:
    if combination.ownership.features.presence:
        return None
    if combination.settings.capacity != 1.0:
        return "capacity", combination.settings.capacity
    maximum = combination.settings.maximum_partitions
    return None if maximum is None else ("maximum_partitions", maximum)


def _not_official(combination: Combination) -> tuple[str, object] | None:
    return _first(combination, lambda features: not features.official_layout) if combination.mixed else None


def _two_places(combination: Combination) -> tuple[str, object] | None:
    apart = combination.mixed and combination.ownership.name != combination.checkpoints.name
    return ("checkpoint_store", combination.checkpoints.name) if apart else None


def _unequal_share(combination: Combination) -> tuple[str, object] | None:
    return (
        ("capacity", combination.settings.capacity)
        if combination.mixed and combination.settings.capacity != 1.0
        else None
    )


def _too_many_tasks(combination: Combination) -> tuple[str, object] | None:
    too_many = combination.most_tasks is not None and combination.least_tasks > combination.most_tasks
    return ("min_partitions", combination.least_tasks) if too_many else None


PROMISES = (
    Promise(
        "A partition has one owner, in whatever process",
        "a store in memory lives in one process, and this works in several: each would own every partition, or none "
        "would know how far another has come",
        _in_one_process,
        True,
    ),
    Promise(
        "The new owner of a partition goes on where its former owner was",
        "ownership is shared by instances that do not share these checkpoints: the new owner of a partition would go "
        "on where it was itself, long ago, or begin anew",
        _checkpoints_nearer,
        True,
        "keep ownership in the same store",
    ),
    Promise(
        "A former owner writes no checkpoint",
        "this store takes a checkpoint of a lower owner level: a former owner could send its successor back",
        _unfenced,
        True,
    ),
    Promise(
        "Shares follow capacities, and nobody is given more than its maximum",
        "the ownership store keeps no presence, so the others would not know of it",
        _unheard,
        True,
        "leave it out",
    ),
    Promise(
        "In a mixed fleet, each processor sees the others",
        "the hub's URL says fleet=mixed, and other SDKs' processors do not read this store: each side would own "
        "every partition",
        _not_official,
        True,
        "take fleet=mixed out of the hub's URL if all instances are Leasehold's",
    ),
    Promise(
        "In a mixed fleet, each processor goes on where the other was",
        "the hub's URL says fleet=mixed, and other SDKs' processors keep checkpoints where they keep ownership",
        _two_places,
        otherwise="Name the ownership store here too",
    ),
    Promise(
        "In a mixed fleet, nothing moves once it is balanced",
        "other SDKs' processors take equal shares, and would steal back what a larger or smaller share moves",
        _unequal_share,
        otherwise="Leave it out in a mixed fleet",
    ),
    Promise(
        "A batch is read in as many tasks as were asked for",
        "here a partition has one receiver at a time, so that a batch has no more tasks than the hub has partitions",
        _too_many_tasks,
        otherwise="Ask for fewer, or repartition after the source",
    ),
)
"""Every promise that hangs on a combination, in the order in which they are checked."""
