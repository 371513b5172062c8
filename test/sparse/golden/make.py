"""Make the golden file with spconv 2.3.8 (``pip install spconv==2.3.8 torch``, or a spconv-cu* wheel with --cuda).

    python test/sparse/golden/make.py [--cuda] [-o FILE]

Needs nothing of this package: the network below is written with spconv's own layers. spconv's CPU build is only right
with one thread, so one is what this uses.
"""

import argparse
import hashlib
import sys
from pathlib import Path

import numpy as np
import spconv
import spconv.pytorch as sp
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from fixed import GOLDEN, SHAPE, fixed_features, fixed_state, packed_sites, unpacked_sites

torch.set_num_threads(1)


def norm(width):
    return nn.BatchNorm1d(width, eps=1e-3)


def convolve(layer, x):
    """The layer with its bias added here: spconv's CPU build refuses a bias in evaluation mode."""
    bias, layer.bias = layer.bias, None
    y = layer(x)
    layer.bias = bias
    return y.replace_feature(y.features + bias)


class Block(sp.SparseModule):
    def __init__(self, width, key):
        super().__init__()
        self.conv1 = sp.SubMConv3d(width, width, 3, padding=1, bias=True, indice_key=key)
        self.bn1 = norm(width)
        self.conv2 = sp.SubMConv3d(width, width, 3, padding=1, bias=True, indice_key=key)
        self.bn2 = norm(width)

    def forward(self, x):
        y = convolve(self.conv1, x)
        y = y.replace_feature(torch.relu(self.bn1(y.features)))
        y = convolve(self.conv2, y)
        return y.replace_feature(torch.relu(self.bn2(y.features) + x.features))


class Backbone(nn.Module):
    def __init__(self, channels=(16, 32, 64, 128), blocks=(2, 2, 2, 2), out_channels=128):
        super().__init__()

        def level(number, *first):
            width = channels[number - 1]
            return sp.SparseSequential(*first, *(Block(width, f"res{number}") for _ in range(blocks[number - 1])))

        def down(number, padding):
            depth, width = channels[number - 2 : number]
            conv = sp.SparseConv3d(depth, width, 3, 2, padding, bias=False, indice_key=f"spconv{number}")
            return level(number, sp.SparseSequential(conv, norm(width), nn.ReLU()))

        first, last = channels[0], channels[3]
        subm = sp.SubMConv3d(4, first, 3, padding=1, bias=False, indice_key="subm1")
        self.conv_input = sp.SparseSequential(subm, norm(first), nn.ReLU())
        self.conv1 = level(1)
        self.conv2, self.conv3, self.conv4 = down(2, 1), down(3, 1), down(4, (0, 1, 1))
        out = sp.SparseConv3d(last, out_channels, (3, 1, 1), (2, 1, 1), 0, bias=False, indice_key="spconv_down2")
        self.conv_out = sp.SparseSequential(out, norm(out_channels), nn.ReLU())

    def forward(self, x):
        x1 = self.conv1(self.conv_input(x))
        x2 = self.conv2(x1)
        x3 = self.conv3(x2)
        x4 = self.conv4(x3)
        return {"x_conv1": x1, "x_conv2": x2, "x_conv3": x3, "x_conv4": x4, "encoded": self.conv_out(x4)}


def street_sites():
    """Voxels of a 32-beam scanner in a street with boxes: the size and the look of a real frame."""
    rng = np.random.default_rng(3)
    elevation = np.deg2rad(np.linspace(-30, 10, 32))[:, None]
    azimuth = np.linspace(-np.pi, np.pi, 1084, endpoint=False)[None]
    with np.errstate(divide="ignore"):
        reach = np.where(elevation < 0, 1.8 / -np.sin(elevation), np.inf)
        reach = np.minimum(reach, 12 / np.maximum(np.abs(np.sin(azimuth)), 1e-6) / np.cos(elevation))
    for _ in range(60):
        angle, distance, half, top = (
            rng.uniform(-np.pi, np.pi),
            rng.uniform(4, 45),
            rng.uniform(0.5, 2),
            rng.uniform(0, 2),
        )
        wide = np.abs(np.angle(np.exp(1j * (azimuth - angle)))) < half / distance
        low = distance * np.tan(elevation) < top
        reach = np.where(wide & low, np.minimum(reach, distance / np.cos(elevation)), reach)
    reach = reach + rng.normal(0, 0.03, reach.shape)
    flat = reach * np.cos(elevation)
    points = np.stack([flat * np.cos(azimuth), flat * np.sin(azimuth), reach * np.sin(elevation)], axis=-1)
    cell = np.floor((points.reshape(-1, 3) - [-54, -54, -5]) / [0.075, 0.075, 0.2]).astype(np.int64)[:, ::-1]
    inside = ((cell >= 0) & (cell < np.array(SHAPE) - [1, 0, 0])).all(axis=1)
    cell = np.unique(cell[inside], axis=0)
    return np.concatenate([np.zeros((len(cell), 1), np.int64), cell], axis=1).astype(np.int32)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=GOLDEN)
    arguments = parser.parse_args()
    device = torch.device("cuda" if arguments.cuda else "cpu")

    sites = unpacked_sites(np.load(GOLDEN)["sites"]) if GOLDEN.exists() else street_sites()
    net = Backbone().eval()
    shapes = {k: tuple(v.shape) for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")}
    state = {name: torch.from_numpy(values) for name, values in fixed_state(shapes).items()}
    net.load_state_dict(state, strict=False)
    net.to(device)
    features = torch.from_numpy(fixed_features(len(sites))).to(device)
    tensor = sp.SparseConvTensor(features, torch.from_numpy(sites).to(device), list(SHAPE), 1)
    torch.backends.cuda.matmul.allow_tf32 = False
    spconv.constants.SPCONV_ALLOW_TF32 = False
    with torch.no_grad():
        levels = net(tensor)

    stored = {"sites": packed_sites(sites), "spconv": np.array(f"{spconv.__version__} on {device.type}")}
    for name, level in levels.items():
        indices = level.indices.cpu().numpy()
        order = np.lexsort(indices.T[::-1])
        indices, values = np.ascontiguousarray(indices[order]), level.features.cpu().numpy()[order]
        rows = np.arange(0, len(indices), max(1, len(indices) // 48))
        stored[f"{name}.shape"] = np.array(level.spatial_shape)
        stored[f"{name}.count"] = np.array(len(indices))
        stored[f"{name}.digest"] = np.array(hashlib.sha256(indices.astype("<i4").tobytes()).hexdigest())
        stored[f"{name}.rows"], stored[f"{name}.features"] = rows, values[rows]
        stored[f"{name}.mean_abs"] = np.abs(values.astype(np.float64)).mean(axis=0)
        print(name, len(indices), "sites, mean", float(np.abs(values).mean()), "max", float(np.abs(values).max()))
    np.savez_compressed(arguments.output, **stored)
    print(arguments.output, arguments.output.stat().st_size, "bytes, spconv", spconv.__version__, "on", device)


if __name__ == "__main__":
    main()
