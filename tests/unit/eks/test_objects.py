"""Names, tags and tokens by which objects are recognized."""

from __future__ import annotations

from datetime import UTC, datetime

from gpuctl.eks.objects import Kind, Object, State, expires, expiry, from_answer, object_name, role_name, tags, token

LONG = "a" * 100


def test_role_names_differ_between_regions_and_fit_into_64_characters() -> None:
    names = [
        role_name(name, region, "node") for name in (LONG, LONG + "b", "lab") for region in ("us-east-1", "eu-west-1")
    ]
    assert len(set(names)) == len(names)
    assert all(len(one) <= 64 for one in names)
    assert role_name("lab", "us-east-1", "node") == "gpuctl-lab-us-east-1-node"


def test_tags_of_the_user_cannot_replace_ours() -> None:
    made = tags("lab", "us-east-1", "vpc", {"gpuctl:cluster": "other", "team": "ml"})
    assert (made["gpuctl:cluster"], made["team"]) == ("lab", "ml")


def test_an_object_is_ours_only_with_the_tags_of_this_cluster_and_region() -> None:
    def of(cluster: str, region: str) -> bool:
        listed = [{"Key": key, "Value": value} for key, value in tags(cluster, region, "vpc", {}).items()]
        return from_answer(Kind.VPC, {"VpcId": "vpc-1", "Tags": listed}, "lab", "us-east-1").ours

    assert [of("lab", "us-east-1"), of("other", "us-east-1"), of("lab", "us-west-2")] == [True, False, False]


def test_a_token_is_of_one_life_of_a_cluster_and_of_one_content() -> None:
    assert token("AROA1", "nat", {"a": 1}) == token("AROA1", "nat", {"a": 1})
    assert len({token("AROA1", "nat", 1), token("AROA2", "nat", 1), token("AROA1", "nat", 2)}) == 3
    assert len(token("AROA1", "nat")) <= 64


def test_the_end_of_the_time_to_live_survives_as_a_tag() -> None:
    text = expiry(datetime(2026, 7, 1, 12, tzinfo=UTC), 8)
    assert expires(Object(Kind.ROLE, "r", tags={"gpuctl:expires": text})) == datetime(2026, 7, 1, 20, tzinfo=UTC)
    assert expiry(datetime(2026, 7, 1, tzinfo=UTC), None) == ""
    assert expires(Object(Kind.ROLE, "r", tags={"gpuctl:expires": "soon"})) is None
    edited = Object(Kind.ROLE, "r", tags={"gpuctl:expires": "2026-07-01T20:00:00"})  # without a zone
    assert expires(edited) == datetime(2026, 7, 1, 20, tzinfo=UTC)


def test_a_second_object_of_a_part_is_a_duplicate() -> None:
    vpcs = [Object(Kind.VPC, name, "vpc", ours=True) for name in ("vpc-1", "vpc-2")]
    assert State("lab", "us-east-1", vpcs).duplicates() == [vpcs[1]]


def test_names_of_two_clusters_do_not_meet_and_fit_a_launch_template() -> None:
    assert object_name("a-b", "c") != object_name("a", "b-c")
    names = {object_name(one, "p" * 63) for one in (LONG, LONG[:-1] + "b")}
    assert (len(names), max(map(len, names)) <= 128) == (2, True)
