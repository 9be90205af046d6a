"""Find what moves in a video: a background that is learned, and differences at several scales."""

import hashlib
import sys

import numpy as np


def frames(count, height, width):
    rng = np.random.default_rng(3)
    scene = rng.random((height, width)) * 60
    for number in range(count):
        frame = scene + rng.normal(0, 2, scene.shape)
        left = 5 + 2 * (number % (width // 4))
        frame[height // 3 : height // 2, left : left + width // 10] += 120
        yield np.clip(frame, 0, 255).astype(np.uint8)


def halve(image):
    return 0.25 * (image[::2, ::2] + image[1::2, ::2] + image[::2, 1::2] + image[1::2, 1::2])


def pyramid(image, levels=3):
    result = [image]
    for _ in range(levels - 1):
        result.append(halve(result[-1]))
    return result


def blur(image):
    padded = np.pad(image, 1, mode="edge")
    return (padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:] + 4 * image) / 8


def detect(frames):
    background = None
    for frame in frames:
        smooth = blur(frame.astype(np.float64))
        if background is None:
            background = smooth
            continue
        moving = np.zeros(smooth.shape)
        for scale, (now, before) in enumerate(zip(pyramid(smooth), pyramid(background), strict=True)):
            moving += np.kron(np.abs(now - before), np.ones((2**scale, 2**scale)))
        rows, columns = np.nonzero(moving > 3 * moving.mean())
        if len(rows):
            yield rows.mean(), columns.mean()
        background = 0.95 * background + 0.05 * smooth


def main(count=130, height=480, width=640):
    tracks = np.array(list(detect(frames(count, height, width))))
    print(len(tracks))
    print(hashlib.sha256(tracks.tobytes()).hexdigest())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
