"""Checkpoint files: what PyTorch wrote is read, what is damaged is named, and nothing in them runs."""

import io
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from radius_fps_ros.errors import InputError
from radius_fps_ros.sparse import load_weights

from .golden.fixed import uniform

DATA = Path(__file__).with_name("data")


@pytest.mark.parametrize("name", ["small_zip.pth", "small_legacy.pth"])
def test_files_that_pytorch_wrote(name):
    """Written by PyTorch 2.13 from ``golden.fixed.uniform``, as zip and in the format before 1.6."""
    state = load_weights(DATA / name)
    assert (state["a"] == uniform("a", (2, 3))).all()
    assert (state["h"] == uniform("h", (5,)).astype(np.float16)).all()
    assert np.abs(state["b"] - uniform("b", (4,))).max() < 2**-8  # bfloat16
    assert (state["d"] == uniform("d", (2,))).all()
    assert (state["t"] == uniform("t", (4, 6)).T).all()  # a transposed view
    assert (state["s"] == uniform("s", (8, 8))[2:5, 1:7:2]).all()  # a strided view with an offset
    assert (state["p"] == uniform("p", (3,))).all()  # a Parameter
    assert state["e"].shape == (0, 3)
    assert state["n"] == 7
    assert state["m"].tolist() == [True, False]
    assert {state[key].dtype for key in "ahbdtspe"} == {np.dtype(np.float32)}


class _Command:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def _as_zip(path, payload):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", payload)


def _as_legacy(path, payload):
    head = [pickle.dumps(v, 2) for v in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})]
    path.write_bytes(b"".join(head) + payload)


def _as_magic(path, payload):
    path.write_bytes(payload)


@pytest.mark.parametrize("store", [_as_zip, _as_legacy, _as_magic])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_checkpoint_that_tries_to_run_code_is_refused_and_runs_nothing(tmp_path, store, protocol):
    marker, path = tmp_path / "marker", tmp_path / "evil.pth"
    payload = pickle.dumps({"state_dict": {"a": _Command(marker)}}, protocol)
    pickle.loads(payload)
    assert marker.exists(), "the payload must work where nothing stops it"
    marker.unlink()
    store(path, payload)
    with pytest.raises(InputError, match=r"asks for \w+\.system, which is no tensor: refused without running"):
        load_weights(path)
    assert not marker.exists()


@pytest.mark.parametrize(
    "name", ["builtins.eval", "builtins.getattr", "torch._utils.__builtins__", "torch.load", "os.path"]
)
def test_no_other_name_can_be_reached(tmp_path, name):
    module, attribute = name.rsplit(".", 1)
    _as_zip(tmp_path / "w.pth", f"c{module}\n{attribute}\n.".encode())
    with pytest.raises(InputError, match="refused"):
        load_weights(tmp_path / "w.pth")


def _zip_with_tensor(path, size, stride, offset=0, raw=b"\0" * 16, kind="FloatStorage"):
    """A hand-written archive with one float tensor ``a`` over ``raw``."""
    text = io.BytesIO()
    text.write(b"\x80\x02}(X\x01\x00\x00\x00a")
    text.write(b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage")
    text.write(f"ctorch\n{kind}\n".encode() + b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ")
    text.write(f"I{offset}\n".encode())
    for values in (size, stride):
        text.write(b"(" + b"".join(f"I{v}\n".encode() for v in values) + b"t")
    text.write(b"\x89}tRu.")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w/data.pkl", text.getvalue())
        archive.writestr("w/data/0", raw)


def test_the_hand_written_archive_is_right(tmp_path):
    _zip_with_tensor(tmp_path / "w.pth", (2, 2), (2, 1), raw=np.float32([1, 2, 3, 4]).tobytes())
    assert load_weights(tmp_path / "w.pth")["a"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [((5,), (1,), 0), ((4,), (1,), 1), ((2,), (10**12,), 0), ((2, 2), (1,), 0), ((2,), (-1,), 1), ((2,), (1,), -1),
     ((10**9, 10**9), (0, 0), 0)],
)  # fmt: skip
def test_tensors_outside_their_storage_are_refused(tmp_path, size, stride, offset):
    _zip_with_tensor(tmp_path / "w.pth", size, stride, offset)
    with pytest.raises(InputError, match="damaged or no PyTorch file"):
        load_weights(tmp_path / "w.pth")


def test_memory_that_runs_out_is_not_called_damage(monkeypatch):
    def exhausted(*_):
        raise MemoryError

    monkeypatch.setattr("radius_fps_ros.sparse.checkpoints._values", exhausted)
    with pytest.raises(InputError, match=r"small_zip\.pth needs more memory than there is"):
        load_weights(DATA / "small_zip.pth")


def _damage(tmp_path, name):
    raw = (DATA / name).read_bytes()
    for end in (0, 1, 40, len(raw) // 2, len(raw) - 3):
        yield raw[:end]
    for place in range(0, len(raw), 37):
        yield raw[:place] + bytes([raw[place] ^ 0x55]) + raw[place + 1 :]


@pytest.mark.parametrize("name", ["small_zip.pth", "small_legacy.pth"])
def test_damaged_files_never_end_in_a_traceback(tmp_path, name):
    path, refused = tmp_path / "damaged.pth", 0
    for raw in _damage(tmp_path, name):
        path.write_bytes(raw)
        try:
            load_weights(path)
        except InputError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: None, "cannot read the checkpoint"),
        (lambda p: p.mkdir(), "cannot read the checkpoint"),
        (lambda p: p.write_text("hello"), "damaged or no PyTorch file"),
        (lambda p: zipfile.ZipFile(p, "w").close(), "without a data.pkl"),
        (lambda p: _as_zip(p, pickle.dumps({"epoch": 3}, 2)), "holds no state dict"),
        (lambda p: _as_zip(p, pickle.dumps([1, 2], 2)), "holds no state dict"),
    ],
)
def test_files_without_a_state_dict_are_refused(tmp_path, make, message):
    make(tmp_path / "w.pth")
    with pytest.raises(InputError, match=message):
        load_weights(tmp_path / "w.pth")


def test_a_damaged_safetensors_file_is_refused(tmp_path):
    (tmp_path / "w.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="not a readable safetensors file"):
        load_weights(tmp_path / "w.safetensors")
    with pytest.raises(InputError, match="cannot read the checkpoint"):
        load_weights(tmp_path / "missing.safetensors")
