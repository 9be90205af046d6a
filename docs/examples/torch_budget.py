"""Training in PyTorch within 60 % of the plain step's peak."""

import torch
from torch.nn.functional import cross_entropy

import stowplan.torch

torch.manual_seed(0)
layers = [layer for _ in range(8) for layer in (torch.nn.Linear(64, 64), torch.nn.GELU())]
model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
batches = [(torch.randn(512, 64), torch.randint(10, (512,))) for _ in range(5)]

training = stowplan.torch.schedule(
    model, optimizer, lambda model, x, y: cross_entropy(model(x), y), budget="60%", pool=stowplan.TorchPool()
)
for x, y in batches:
    loss = training.step(x, y)  # forward, backward, update

stats = training.stats
print(f"loss {loss:.3f}; peak {stats.peak:,} bytes, of plain PyTorch {stats.plain_peak:,}")
print(f"{stats.recomputed} operators run again in each step")
assert stats.peak <= 0.6 * stats.plain_peak
