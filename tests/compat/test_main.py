"""`python -m wholegrain` runs programs as Python does."""

from pathlib import Path

import pytest

from tests.compat.programs import printed, python

_SHOW = "import sys, grain\nprint(__name__, sys.argv, grain.MapDataset.__module__)\n"


def test_a_script_is_run_with_its_arguments(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "beside.py").write_text("import grain\n")
    code = f"import beside\n{_SHOW}print(__file__, beside.grain is grain)"
    (folder / "script.py").write_text(code)
    lines = printed("-m", "wholegrain", "folder/script.py", "--a", "b", cwd=tmp_path)
    assert lines == [
        "__main__ ['folder/script.py', '--a', 'b'] wholegrain._graph.map_dataset",
        "folder/script.py True",
    ]


def test_a_module_and_code_are_run(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "tool.py").write_text(f"{_SHOW}from . import __name__ as p; print(p, __spec__.name)")
    (package / "__main__.py").write_text("print('main of', __package__)")
    shown, where = printed("-m", "wholegrain", "-m", "package.tool", "x", cwd=tmp_path)
    assert shown.startswith("__main__ [")
    assert shown.endswith("tool.py', 'x'] wholegrain._graph.map_dataset")
    assert where == "package package.tool"
    assert printed("-m", "wholegrain", "-m", "package", cwd=tmp_path) == ["main of package"]
    lines = printed("-m", "wholegrain", "-c", _SHOW, "x", cwd=tmp_path)
    assert lines == ["__main__ ['-c', 'x'] wholegrain._graph.map_dataset"]


def test_an_error_shows_the_lines_of_the_program_alone(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("def f():\n    return 1 / 0\n\nf()\n")
    plain = python("script.py", cwd=tmp_path)
    run = python("-m", "wholegrain", "script.py", cwd=tmp_path)
    assert run.returncode == plain.returncode == 1
    assert run.stderr.replace(str(tmp_path) + "/", "") == plain.stderr.replace(
        str(tmp_path) + "/", ""
    )
    (tmp_path / "script.py").write_text("x = (\n")
    run = python("-m", "wholegrain", "script.py", cwd=tmp_path)
    assert run.returncode == 1
    assert "SyntaxError" in run.stderr
    assert "wholegrain" not in run.stderr


def test_the_exit_code_is_the_programs(tmp_path: Path) -> None:
    assert python("-m", "wholegrain", "-c", "import sys; sys.exit(7)", cwd=tmp_path).returncode == 7


def test_processes_that_a_script_spawns_get_it_too(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import multiprocessing, sys\n"
        "import grain\n"
        "class Mine:\n"
        "    pass\n"
        "def show(queue, mine):\n"
        "    queue.put((grain.MapDataset.__module__, isinstance(mine, Mine), sys.argv))\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    queue = context.SimpleQueue()\n"
        "    process = context.Process(target=show, args=(queue, Mine()))\n"
        "    process.start()\n"
        "    process.join()\n"
        "    print(process.exitcode, queue.get() if not process.exitcode else None)\n"
    )
    (line,) = printed("-m", "wholegrain", "script.py", "x", cwd=tmp_path)
    assert line.startswith("0 ('wholegrain._graph.map_dataset', True, [")


@pytest.mark.parametrize("name", ["nothing.py", "nothing"])
def test_a_script_that_is_not_there_is_told(tmp_path: Path, name: str) -> None:
    run = python("-m", "wholegrain", name, cwd=tmp_path)
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    assert f"no script '{name}'" in run.stderr


def test_a_module_that_is_not_there_is_told(tmp_path: Path) -> None:
    for arguments in (["-m", "nothing"], ["-m", "nothing.at_all"], ["-m"], ["-c"]):
        run = python("-m", "wholegrain", *arguments, cwd=tmp_path)
        assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1)


def test_commands_are_reached_unless_there_is_such_a_script(tmp_path: Path) -> None:
    assert printed("-m", "wholegrain", "--version", cwd=tmp_path)[0].startswith("wholegrain ")
    assert "usage" in printed("-m", "wholegrain", cwd=tmp_path)[0]
    assert "usage" in printed("-m", "wholegrain", "demo", "--help", cwd=tmp_path)[0]
    (tmp_path / "demo").write_text("print('a script')")
    assert printed("-m", "wholegrain", "demo", "--help", cwd=tmp_path) == ["a script"]
