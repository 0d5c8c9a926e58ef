import dataclasses
import textwrap

import pytest

from core_jax import settings


@dataclasses.dataclass(frozen=True)
class Inner:
    rate: float = 1e-3
    name: str = "a"
    flag: bool = True
    sizes: tuple[int, ...] = (1, 2)
    limit: int | None = None


@dataclasses.dataclass(frozen=True)
class Outer:
    inner: Inner = Inner()
    steps: int = 3


def test_override_walks_fields_and_casts():
    c = settings.override(Outer(), ["inner.rate=1", "inner.flag=false", "inner.sizes=[3,4]", "inner.limit=7", "steps=9",
                                    "inner.name=12"])
    assert c == Outer(Inner(1.0, "12", False, (3, 4), 7), 9)
    assert isinstance(c.inner.rate, float)


@pytest.mark.parametrize("item, words", [
    ("inner.rat=1", "did you mean 'rate'"),
    ("iner.rate=1", "did you mean 'inner'"),
    ("steps.x=1", "no fields of its own"),
    ("inner=3", "is a group"),
    ("steps=1.5", "expected int"),
    ("steps=true", "expected int"),
    ("inner.flag=1", "expected bool"),
    ("steps", "expected key=value"),
    ("inner.sizes=[1,'a']", "expected"),
])
def test_override_errors(item, words):
    with pytest.raises(ValueError, match=words):
        settings.override(Outer(), [item])


def test_round_trip_and_unknown_key():
    c = settings.override(Outer(), ["inner.limit=7"])
    assert settings.from_dict(Outer, settings.to_dict(c)) == c
    with pytest.raises(ValueError, match="config.inner: Inner has no field 'x'"):
        settings.from_dict(Outer, {"inner": {"x": 1}})
    with pytest.raises(ValueError, match="config.steps"):
        settings.from_dict(Outer, {"steps": "3"})


def test_config_file(tmp_path):
    path = tmp_path / "c.py"
    path.write_text(textwrap.dedent("""
        import dataclasses
        def get_config():
            return 3
    """))
    with pytest.raises(ValueError, match="expected Outer"):
        settings.load(str(path), Outer)
    path.write_text("x = 1\n")
    with pytest.raises(ValueError, match="no get_config"):
        settings.load(str(path), Outer)
