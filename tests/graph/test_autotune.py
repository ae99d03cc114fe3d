"""`experimental.autotune`: adjusts parameters while a pipeline runs, and changes nothing else."""

import pickle
import time
from typing import Any

import pytest

import wholegrain as wg
from wholegrain import experimental as ex
from wholegrain.testing import check_iter_dataset


class _Sleepy:
    """Records that take a while to arrive."""

    def __init__(self, count: int, seconds: float) -> None:
        self._count, self._seconds = count, seconds
        self.most_at_once = self._reading = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        self._reading += 1
        self.most_at_once = max(self.most_at_once, self._reading)
        time.sleep(self._seconds)
        self._reading -= 1
        return index


def _parameter(initial: int, largest: int | None = None) -> ex.AutotuneParameter:
    return ex.AutotuneParameter("number", initial, 1, largest)


def test_a_parameter_is_a_number_with_a_range() -> None:
    parameter = ex.AutotuneParameter("threads", 4, 1, 16)
    assert (int(parameter), float(parameter), parameter.get_value()) == (4, 4.0, 4.0)
    assert str(parameter) == "threads (value = 4.000000, range = [1.000000, 16.000000])"
    parameter.set_value(8)
    copy = pickle.loads(pickle.dumps(parameter))
    assert (int(copy), copy.id, copy.name) == (8, parameter.id, "threads")
    assert copy.trust_region_multiplier == 2.0
    with pytest.raises(ValueError, match="from 1 to 16, but got 32"):
        parameter.set_value(32)
    parameter.set_value(32, validate_value=False)
    assert int(parameter) == 32


def test_a_parameter_without_values_begins_with_the_smallest() -> None:
    assert int(ex.AutotuneParameter("x")) == 1
    assert int(ex.AutotuneParameter("x", min_value=3)) == 3


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"initial_value": 0}, ValueError, "from 1 to inf, but got 0"),
        ({"min_value": 4, "max_value": 2}, ValueError, "cannot be larger than `max_value`"),
        ({"initial_value": "four"}, TypeError, "has to be a number, but got 'four'"),
        ({"max_value": float("nan")}, ValueError, "has to be a number"),
        ({"trust_region_multiplier": 1}, ValueError, "larger than 1"),
    ],
)
def test_wrong_values_of_a_parameter_are_refused(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        ex.AutotuneParameter("x", **arguments)


def _everything() -> wg.IterDataset[Any]:
    """A pipeline with a parameter in every place that accepts one."""
    options = wg.ReadOptions(_parameter(2), _parameter(8))
    ds = wg.MapDataset.range(40).shuffle(seed=1).map(lambda x: 2 * x).to_iter_dataset(options)
    ds = ex.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=_parameter(3))
    parts = [ds, ds.map(lambda x: -x), ds]
    return ex.InterleaveIterDataset(parts, cycle_length=_parameter(2))


def test_elements_and_states_are_those_without_it() -> None:
    ds = _everything()
    config = ex.AutotuneModelConfig(optimization_frequency=3)
    tuned = ex.autotune(ds, config)
    check_iter_dataset(tuned)
    plain, it = iter(ds), iter(tuned)
    for element in plain:
        assert next(it) == element
        assert it.get_state() == plain.get_state()


def test_workers_read_the_same_elements() -> None:
    options = wg.ReadOptions(_parameter(2), _parameter(8))
    ds = wg.MapDataset.range(50).to_iter_dataset(options)
    tuned = ex.autotune(ds, ex.AutotuneModelConfig(optimization_frequency=5))
    assert list(tuned.mp_prefetch(wg.MultiprocessingOptions(num_workers=2))) == list(range(50))
    assert list(tuned.mp_prefetch(wg.MultiprocessingOptions("auto"))) == list(range(50))


def test_threads_are_added_while_the_loop_waits() -> None:
    threads, buffer = _parameter(1, 8), ex.AutotuneParameter("buffer", 64, 64, 64)
    options = wg.ReadOptions(threads, buffer)
    ds = wg.MapDataset.source(_Sleepy(20_000, 2e-3)).to_iter_dataset(options)
    config = ex.AutotuneModelConfig(cpu_budget=64, optimization_frequency=20)
    # On a busy machine a trial may fail. Then there is another one later.
    for expected, element in enumerate(ex.autotune(ds, config)):
        assert element == expected
        if int(threads) >= 4:
            break
    assert 4 <= int(threads) <= 8
    assert int(buffer) == 64


def test_nothing_is_tuned_during_the_warm_up() -> None:
    threads = _parameter(1, 8)
    options = wg.ReadOptions(threads, 64)
    ds = wg.MapDataset.source(_Sleepy(200, 1e-3)).to_iter_dataset(options)
    config = ex.AutotuneModelConfig(cpu_budget=64, optimization_frequency=10, warmup_steps=200)
    assert len(list(ex.autotune(ds, config))) == 200
    assert int(threads) == 1


def test_a_memory_budget_that_is_exceeded_lowers_buffers() -> None:
    buffer = _parameter(64)
    options = wg.ReadOptions(2, buffer)
    ds = wg.MapDataset.range(4000).to_iter_dataset(options)
    config = ex.AutotuneModelConfig(ram_budget_gb=1e-6, optimization_frequency=10)
    assert list(ex.autotune(ds, config)) == list(range(4000))
    assert int(buffer) == 1


def test_a_parameter_that_is_set_while_threads_read_takes_effect() -> None:
    threads, source = _parameter(1, 16), _Sleepy(3000, 1e-3)
    options = wg.ReadOptions(threads, 64)
    with iter(wg.MapDataset.source(source).to_iter_dataset(options)) as it:
        assert [next(it) for _ in range(100)] == list(range(100))
        assert source.most_at_once == 1
        threads.set_value(16)
        assert [next(it) for _ in range(300)] == list(range(100, 400))
        assert source.most_at_once > 4


class _Own(wg.IterDataset[int]):
    def __iter__(self) -> Any:
        return iter(wg.MapDataset.range(3).to_iter_dataset())


def test_an_unknown_stage_is_named() -> None:
    ds = _Own().map(lambda x: x)
    with pytest.raises(ValueError, match="does not know _Own"):
        ex.autotune(ds)
    assert list(ex.autotune(ds, allow_unknown_nodes=True)) == [0, 1, 2]


def test_failures_of_the_tuner_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    threads = _parameter(1)
    options = wg.ReadOptions(threads, 64)
    ds = ex.autotune(
        wg.MapDataset.source(_Sleepy(60, 1e-3)).to_iter_dataset(options),
        ex.AutotuneModelConfig(cpu_budget=64, optimization_frequency=5),
    )
    threads.min_value = 100.0  # No value is allowed any more.
    threads.max_value = 99.0
    assert list(ds) == list(range(60))
    assert "the parameters stay as they are" in caplog.text


def test_a_subclass_of_the_config_sets_the_budgets() -> None:
    class Config(ex.AutotuneModelConfig):
        def get_optimization_frequency(self) -> int:
            return 7

    assert Config(cpu_budget=3, ram_budget_gb=2).get_cpu_budget() == 3
    assert Config(ram_budget_gb=2).get_ram_budget_gb() == 2
    assert Config().get_cpu_budget() >= 1
    assert Config().get_ram_budget_gb() > 0
    assert Config().get_warmup_steps() == 0
    ds = wg.MapDataset.range(30).to_iter_dataset()
    assert list(ex.autotune(ds, Config())) == list(range(30))


@pytest.mark.parametrize("mode", list(ex.ConcurrencyRegularizationMode))
def test_every_regularisation_keeps_the_elements(mode: ex.ConcurrencyRegularizationMode) -> None:
    ds = wg.MapDataset.range(50).to_iter_dataset(wg.ReadOptions(_parameter(1), 8))
    tuned = ex.autotune(ds, concurrency_reg_mode=mode, concurrency_reg_weight=0.5)
    assert list(tuned) == list(range(50))


def test_mistakes_are_reported_by_the_call() -> None:
    with pytest.raises(TypeError, match=r"Call `to_iter_dataset\(\)` first"):
        ex.autotune(wg.MapDataset.range(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`cpu_budget` has to be a number above 0"):
        ex.AutotuneModelConfig(cpu_budget=0)
    with pytest.raises(ValueError, match="`optimization_frequency` has to be at least 1"):
        ex.AutotuneModelConfig(optimization_frequency=0)
    with pytest.raises(TypeError, match="ConcurrencyRegularizationMode"):
        ex.autotune(_Own(), concurrency_reg_mode="linear")  # type: ignore[arg-type]


def test_a_cycle_length_keeps_its_value() -> None:
    cycle = _parameter(2, 8)
    parts = [wg.MapDataset.range(3).to_iter_dataset() for _ in range(4)]
    ds = ex.InterleaveIterDataset(parts, cycle_length=cycle)
    plain = ex.InterleaveIterDataset(parts, cycle_length=2)
    cycle.set_value(4)
    assert list(ex.autotune(ds)) == list(plain)
