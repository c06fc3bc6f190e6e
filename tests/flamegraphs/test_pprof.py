"""Profiles for pprof, read by Protocol Buffers with the messages of pprof's proto/profile.proto."""

from __future__ import annotations

import gzip
from collections import Counter
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from fusetools import flame

STACKS = {"main;read;lookup": 400, "main;read": 200.5, "main;main": 100, "é \u202e<x>": 7}
GRAPH = flame.Folded(STACKS, "us")
# The fields that are read here: name, number, type; messages by name, * for repeated fields.
MESSAGES = {
    "Profile": "sample_type 1 *ValueType,sample 2 *Sample,location 4 *Location,"
    "function 5 *Function,string_table 6 *string,period_type 11 ValueType,period 12 int64,"
    "comment 13 *int64",
    "ValueType": "type 1 int64,unit 2 int64",
    "Sample": "location_id 1 *uint64,value 2 *int64,label 3 *Label",
    "Label": "key 1 int64,str 2 int64",
    "Location": "id 1 uint64,line 4 *Line",
    "Line": "function_id 1 uint64",
    "Function": "id 1 uint64,name 2 int64",
}


def profile_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="profile.proto", package="perftools.profiles", syntax="proto3"
    )
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for row in fields.split(","):
            field, number, kind = row.split()
            of = kind.lstrip("*")
            one = message.field.add(name=field, number=int(number))
            one.label = one.LABEL_REPEATED if kind != of else one.LABEL_OPTIONAL
            if of in MESSAGES:
                one.type, one.type_name = one.TYPE_MESSAGE, f".perftools.profiles.{of}"
            else:
                one.type = getattr(one, f"TYPE_{of.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName("perftools.profiles.Profile")
    return message_factory.GetMessageClass(found)


def parsed(content: object) -> tuple[Any, dict[tuple[str, ...], int]]:
    """Return the profile, and the weight of each stack (its labels come first)."""
    assert isinstance(content, bytes)
    profile = profile_class().FromString(gzip.decompress(content))
    text = profile.string_table
    assert text[0] == "" and len(set(text)) == len(text)
    functions = {function.id: text[function.name] for function in profile.function}
    places = {place.id: functions[place.line[0].function_id] for place in profile.location}
    assert 0 not in functions and 0 not in places
    found: Counter[tuple[str, ...]] = Counter()
    for sample in profile.sample:
        labels = [f"{text[label.key]}={text[label.str]}" for label in sample.label]
        (weight,) = sample.value
        names = [places[number] for number in reversed(sample.location_id)]
        found[(*labels, ";".join(names))] += weight
    return profile, dict(found)


def test_it_holds_the_stacks_in_ns() -> None:
    profile, found = parsed(flame.drawn(GRAPH, "x.pb.gz", title="Of this"))
    text = profile.string_table
    (of,) = profile.sample_type
    assert (text[of.type], text[of.unit]) == ("time", "nanoseconds")
    assert [text[comment] for comment in profile.comment] == ["Of this"]
    assert found == {(stack,): round(1000 * us) for stack, us in STACKS.items()}


def test_other_units_count_as_they_are() -> None:
    profile, found = parsed(flame.drawn(flame.Folded({"a;b": 3}), "x.pprof"))
    assert profile.string_table[profile.sample_type[0].unit] == "samples"
    assert found == {("a;b",): 3}


def test_a_difference_has_a_base() -> None:
    """pprof shows shares of what was before, as with its option -diff_base."""
    before, after = flame.Folded({"main;read": 4, "a": 6}), flame.Folded({"main;read": 9})
    base = "pprof::base=true"
    _, found = parsed(flame.pprof(flame.diff(before, after)))
    assert found == {(base, "main;read"): -4, (base, "a"): -6, ("main;read",): 9}
