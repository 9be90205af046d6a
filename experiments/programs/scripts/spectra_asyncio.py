"""Sensors deliver signals, and consumers make spectra of them: tasks of asyncio, and a thread for each FFT."""

import asyncio
import hashlib
import sys

import numpy as np


def spectrum(signal):
    window = np.hanning(len(signal))
    return np.log1p(np.abs(np.fft.rfft(signal * window)) ** 2)


async def sensor(number, blocks, queue, length=65536):
    rng = np.random.default_rng(number)
    t = np.arange(length)
    for _ in range(blocks):
        await queue.put(np.sin(t * (number + 1) / 50) + 0.5 * rng.standard_normal(length))
        await asyncio.sleep(0)
    await queue.put(None)


async def consumer(queue):
    mean = None
    while (signal := await queue.get()) is not None:
        new = await asyncio.to_thread(spectrum, signal)
        mean = new if mean is None else 0.9 * mean + 0.1 * new
    return mean


async def run(blocks, sensors=4):
    queues = [asyncio.Queue(2) for _ in range(sensors)]
    producers = [asyncio.create_task(sensor(i, blocks, queue)) for i, queue in enumerate(queues)]
    spectra = await asyncio.gather(*map(consumer, queues))
    await asyncio.gather(*producers)
    return spectra


def main(blocks=120):
    spectra = asyncio.run(run(blocks))
    for spectrum_ in spectra:
        print(int(spectrum_.argmax()), float(spectrum_.mean()))
    print(hashlib.sha256(b"".join(s.tobytes() for s in spectra)).hexdigest())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
