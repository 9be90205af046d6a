"""A scikit-image pipeline over the photographs that come with it: denoise, find edges, measure, for several scales."""

import sys

import numpy as np
from skimage import data, exposure, filters, img_as_float

NAMES = ("camera", "coins", "moon", "page", "text")


def measure(image, sigma):
    smooth = filters.gaussian(image, sigma)
    edges = filters.sobel(exposure.rescale_intensity(smooth))
    return float(smooth.mean()), float(edges.max()), int((edges > filters.threshold_otsu(edges)).sum())


def main(passes):
    photographs = [img_as_float(getattr(data, name)()) for name in NAMES]
    for sigma in np.linspace(1, 3, passes):
        for name, photograph in zip(NAMES, photographs):
            print(name, f"{sigma:.3f}", *measure(photograph, sigma))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
