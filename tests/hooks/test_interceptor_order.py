"""Registration: what is taken as an interceptor, under which name, in which order."""

import dataclasses

import pytest

from lictor.errors import DefinitionError
from lictor.hooks import ALLOW, POINTS, Bound, Gate, Interceptor, Verdict, arrange, interceptor


@interceptor(points=["output"], version="3")
def secret_egress(context):
    return ALLOW


@interceptor(name="named", always_enforce=True)
class HTTPGuardV2:
    def intercept(self, context):
        return ALLOW

    def config(self):
        return {"limit": 3}


class PlainGuard:
    def intercept(self, context):
        return ALLOW


def names(*scopes):
    return [bound.name for bound in arrange(scopes)]


def test_names_say_where_an_interceptor_comes_from():
    """A qualified name is the scope and the declared or kebab-case name."""
    assert names(
        ("runtime", [secret_egress]),
        ("team:orders", {"egress": PlainGuard()}),
        ("agent:clerk", [HTTPGuardV2(), PlainGuard(), lambda context: ALLOW]),
        ("", [PlainGuard()]),
    ) == [
        "runtime/secret-egress",
        "team:orders/egress",
        "agent:clerk/named",
        "agent:clerk/plain-guard",
        "agent:clerk/lambda",
        "plain-guard",
    ]


def test_class_names_become_kebab_case():
    """Humps and acronyms are parted the way people read them."""

    class HTTPGuard(PlainGuard):
        pass

    class _SecretEgress2Guard(PlainGuard):
        pass

    assert names(("", [HTTPGuard(), _SecretEgress2Guard()])) == ["http-guard", "secret-egress2-guard"]


def test_unnamed_doubles_are_numbered():
    """Two interceptors nobody named get different names; a chosen name is never changed."""
    assert names(("", [PlainGuard(), PlainGuard(), PlainGuard()])) == ["plain-guard", "plain-guard-2", "plain-guard-3"]
    assert names(("", [PlainGuard()]), ("run", {"plain-guard": PlainGuard()})) == ["plain-guard", "run/plain-guard"]


def test_indexes_order_one_scope_and_equals_keep_their_order():
    """The sort by index is stable, 0 unless given, and scopes never mix."""
    a, b, c, d = (PlainGuard() for _ in range(4))
    order = arrange([("outer", [(a, 5), b]), ("inner", {"c": (c, -1), "d": d})])
    assert [bound.interceptor for bound in order] == [b, a, c, d]


def test_an_object_reached_twice_runs_once_outermost():
    """The same object in two scopes is one interceptor, in the outer place."""
    shared, other = PlainGuard(), PlainGuard()
    order = arrange([("runtime", [shared]), ("agent:a", [other, shared])])
    assert [(bound.name, bound.interceptor) for bound in order] == [
        ("runtime/plain-guard", shared),
        ("agent:a/plain-guard", other),
    ]


def test_bound_interceptors_pass_through():
    """What is bound already keeps its name, wherever it is put."""
    bound = arrange([("team:t", [secret_egress])])
    assert arrange([("agent:a", bound)]) == bound
    assert Gate(bound).order() == ["team:t/secret-egress"]
    assert Gate([dataclasses.replace(bound[0], always_enforce=True)]).order() == ["team:t/secret-egress"]


def test_a_bound_interceptor_knows_what_was_declared():
    """Points, version, config and flags are there for a policy fingerprint."""
    first, second, third = arrange([("", [secret_egress, HTTPGuardV2(), PlainGuard()])])
    assert isinstance(first, Bound)
    assert (first.points, first.version, first.config) == (frozenset({"output"}), "3", None)
    assert (second.points, second.config, second.always_enforce) == (frozenset(POINTS), {"limit": 3}, True)
    assert (third.version, third.blocking, third.always_enforce) == ("0", False, False)


def test_declared_functions_stay_functions():
    """The decorator returns what it decorates, so a policy can be tested by calling it."""
    assert secret_egress({}) is ALLOW
    assert isinstance(HTTPGuardV2(), Interceptor)


WRONG = {
    "a number": lambda: arrange([("", [7])]),
    "a class": lambda: arrange([("", [PlainGuard])]),
    "no argument": lambda: arrange([("", [lambda: ALLOW])]),
    "two arguments": lambda: arrange([("", [lambda context, more: ALLOW])]),
    "keyword only": lambda: arrange([("", [lambda *, context: ALLOW])]),
    "a single interceptor": lambda: arrange([("", secret_egress)]),
    "a string": lambda: arrange([("", "guard")]),
    "a bad pair": lambda: arrange([("", [(PlainGuard(), "first")])]),
    "a pair of three": lambda: arrange([("", [(PlainGuard(), 1, 2)])]),
    "a name with a slash": lambda: arrange([("", {"a/b": PlainGuard()})]),
    "an empty name": lambda: arrange([("", {"": PlainGuard()})]),
    "a name twice": lambda: arrange([("", {"a": PlainGuard()}), ("", {"a": PlainGuard()})]),
    "an unknown point": lambda: interceptor(points=["before_tool"]),
    "no points": lambda: interceptor(points=[]),
    "points as text": lambda: interceptor(points="output"),
    "a bad declared name": lambda: interceptor(name="a b"),
    "a class without intercept": lambda: interceptor()(type("Empty", (), {})),
    "a function without argument": lambda: interceptor()(lambda: ALLOW),
    "a method without argument": lambda: interceptor()(type("Bare", (), {"intercept": lambda self: ALLOW})),
    "not callable": lambda: interceptor()(7),
    "a config that is no JSON": lambda: arrange([("", [type("Set", (PlainGuard,), {"config": lambda self: {1}})()])]),
}


@pytest.mark.parametrize("kind", WRONG)
def test_mistakes_are_told_where_they_are_made(kind):
    """Everything that could not work is a DefinitionError at registration."""
    with pytest.raises(DefinitionError) as caught:
        WRONG[kind]()
    assert len(str(caught.value)) > 20


def test_an_unknown_point_is_answered_with_the_eight():
    """The error for an unknown point lists what there is."""
    with pytest.raises(DefinitionError, match=", ".join(POINTS)):
        interceptor(points=["tool"])


def test_blocking_is_for_functions_that_block():
    """An async interceptor cannot be declared blocking."""

    @interceptor(blocking=True)
    async def judge(context):
        return ALLOW

    with pytest.raises(DefinitionError, match="async"):
        arrange([("", [judge])])


def test_c_functions_and_odd_callables_are_taken():
    """What does not tell its signature is believed; anything that takes one argument will do."""

    class Callable:
        def __call__(self, *args, **kwargs):
            return Verdict.allow()

    assert names(("", [Callable(), print, str.upper, max])) == ["callable", "print", "upper", "max"]


def test_an_object_may_choose_its_own_points():
    """A declared class can leave the points to its objects."""

    @interceptor()
    class Choosy:
        def __init__(self, *points):
            self.points = points

        def intercept(self, context):
            return ALLOW

    assert arrange([("", [Choosy("output")])])[0].points == {"output"}
    with pytest.raises(DefinitionError):
        arrange([("", [Choosy("tool")])])
