import glob
import re
from pathlib import Path

import pytest

from wholegrain.sources import _paths
from wholegrain.sources._paths import expand, expand_all, to_text


def test_plain_names_stand_for_themselves() -> None:
    assert expand("a/b.txt") == ["a/b.txt"]
    assert expand("s3://bucket/key") == ["s3://bucket/key"]
    assert expand_all([Path("a"), "b"], of="Source") == ["a", "b"]


def test_sharded_names_stand_for_their_shards() -> None:
    assert expand("dir/name@2") == ["dir/name-00000-of-00002", "dir/name-00001-of-00002"]
    assert expand("name@1.bagz") == ["name-00000-of-00001.bagz"]
    assert expand("gs://b/name@1") == ["gs://b/name-00000-of-00001"]
    assert len(expand("x@100000")) == 100000
    with pytest.raises(ValueError, match="at least one shard"):
        expand("name@0")


def test_an_at_sign_in_a_folder_or_before_letters_is_part_of_the_name() -> None:
    assert expand("a@3/file") == ["a@3/file"]
    assert expand("user@host") == ["user@host"]


def test_patterns_stand_for_sorted_files(tmp_path: Path) -> None:
    for name in ("b", "a", "sub/c", "x[1]"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert expand(f"{tmp_path}/[ab]") == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert expand(f"{tmp_path}/**/c") == [f"{tmp_path}/sub/c"]
    assert expand(f"{tmp_path}/x[1]") == [f"{tmp_path}/x[1]"]  # it exists
    with pytest.raises(FileNotFoundError, match="No file matches the pattern"):
        expand(f"{tmp_path}/*.none")


def test_local_addresses_are_local_paths() -> None:
    assert to_text("file:///data/with%20space") == "/data/with space"
    assert not _paths.is_remote("file:///data")
    assert not _paths.is_remote("C:\\data")
    assert not _paths.is_remote("/data")
    assert _paths.is_remote("s3://bucket/key")


def test_patterns_in_stores_stay_within_folders() -> None:
    def matches(pattern: str, name: str) -> bool:
        return re.fullmatch(_paths._translate(pattern), name) is not None

    assert matches("a/*.txt", "a/b.txt")
    assert not matches("a/*.txt", "a/b/c.txt")
    assert matches("a/**/*.txt", "a/b/c/d.txt")
    assert matches("a/**/*.txt", "a/d.txt")
    assert matches("a/[0-9]?.t+t", "a/1x.t+t")
    assert not matches("a/[!0-9]", "a/1")


NAMES = ["x", ".y", "a/x", "a/.y", "a/b/x", "a/b/.y", ".h/x", ".h/.y", "a/.h/x", "a/.h/b/x"]


@pytest.mark.parametrize(
    "pattern",
    ["*", ".*", "?y", "[.]y", "**", "**/*", "a/**", "a/**/*", "a/*", "a/.*", "**/.y", ".h/*",
     "**/x", "*/.h/**/x", "*/x", "a/.h/**"],
)  # fmt: skip
def test_patterns_in_stores_match_what_glob_matches(pattern: str, tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = glob.glob(pattern, root_dir=tmp_path, recursive=True)
    expected = [name for name in NAMES if name in found]
    matches = re.compile(_paths._translate(pattern)).fullmatch
    assert [name for name in NAMES if matches(name)] == expected
