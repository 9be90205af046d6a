"""Find what moves in a video: a background that is learned, and differences at several scales."""

import numpy as np


def frames(count, height=120, width=160):
    rng = np.random.default_rng(3)
    scene = rng.random((height, width)) * 60
    for number in range(count):
        frame = scene + rng.normal(0, 2, scene.shape)
        left = 5 + number
        frame[40:60, left : left + 15] += 120
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
    tracks = []
    for frame in frames:
        gray = frame.astype(np.float64)
        smooth = blur(gray)
        if background is None:
            background = smooth
            continue
        moving = np.zeros(gray.shape)
        for scale, (now, before) in enumerate(zip(pyramid(smooth), pyramid(background))):
            difference = np.abs(now - before)
            moving += np.kron(difference, np.ones((2**scale, 2**scale)))
        mask = moving > 3 * moving.mean()
        if mask.any():
            rows, columns = np.nonzero(mask)
            tracks.append((rows.mean(), columns.mean()))
        background = 0.95 * background + 0.05 * smooth
    return tracks


tracks = detect(frames(60))
print(len(tracks), f"{tracks[-1][1] - tracks[0][1]:.1f}")
