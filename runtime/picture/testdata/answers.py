"""Prints what other programs compute of the pictures of answers_test.go. Reads one question a line from standard input, and prints
the question, " = " and the answer; questions that need a package that is not installed are left out.

    engine 30x20 64x48               MNN.cv.resize, INTER_LINEAR, of a picture of height 30 and width 20: SHA-256 of the RGB bytes
    planes 30x20 64x48 M,M,M S,S,S   the same call with COLOR_BGR2RGB, mean and scale: SHA-256 of float32 [3, height, width]
    bicubic 30x20 64x48              Pillow, also lanczos and bilinear: SHA-256 of the RGB bytes
    open files/444.jpg               Pillow, turned by EXIF, without alpha: height, width and RGB bytes in base64
    read files/444.jpg               the same of MNN.cv.imread
    fit 30x20 28 3136 1003520        smart_resize of transformers: height and width, or error
    patches 56x84 14                 the image processor of Qwen2-VL without arithmetic: SHA-256 of the bytes of pixel_values

answers.txt was recorded with MNN 3.6.1, Pillow 13.0.0 and transformers 5.23.0:

    python answers.py < questions > answers.txt
"""
import base64
import contextlib
import hashlib
import io
import os
import sys

import numpy as np


def size(text):
    return tuple(map(int, text.split("x")))


def picture(height, width):
    """Noise that Go makes in the same way."""
    i = np.arange(height * width * 3, dtype=np.uint64)
    return ((i * 2654435761 + i * i * 97 & 0xFFFFFFFF) >> 24).astype(np.uint8).reshape(height, width, 3)


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def mnn(before, after, *arguments):
    import MNN.cv as cv
    import MNN.expr as expr

    bgr = picture(*before)[:, :, ::-1]
    image = expr.const(np.ascontiguousarray(bgr).reshape(-1).tolist(), list(bgr.shape), expr.NHWC, expr.uint8)
    return np.array(cv.resize(image, after[::-1], 0, 0, cv.INTER_LINEAR, *arguments).read()).reshape(*after, 3)


def engine(before, after):
    import MNN.cv as cv

    # With numbers that change nothing: without them the wheel returns other memory when the sizes are equal.
    return digest(mnn(size(before), size(after), cv.COLOR_BGR2RGB, [0.0] * 3, [1.0] * 3).astype(np.uint8))


def planes(before, after, mean, scale):
    import MNN.cv as cv

    mean, scale = (list(map(float, v.split(","))) for v in (mean, scale))
    return digest(mnn(size(before), size(after), cv.COLOR_BGR2RGB, mean, scale).astype("<f4").transpose(2, 0, 1))


def pillow(resample):
    def answer(before, after):
        from PIL import Image

        return digest(np.array(Image.fromarray(picture(*size(before))).resize(size(after)[::-1], resample)))

    return answer


def here(name):
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), name)


def pixels(array):
    return "%dx%d " % array.shape[:2] + base64.b64encode(array.astype(np.uint8).tobytes()).decode()


def open_file(name):
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(Image.open(here(name)))
    if image.mode.startswith("I;16"):  # convert("RGB") would clip
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return pixels(np.asarray(image.convert("RGB")))


def read(name):
    import MNN.cv as cv

    image = cv.imread(here(name))
    return pixels(np.array(image.read()).reshape(image.shape)[:, :, ::-1])


def fit(before, factor, least, most):
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    try:
        return "x".join(map(str, smart_resize(*size(before), int(factor), int(least), int(most))))
    except ValueError:
        return "error"


def patches(before, patch):
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    processor = Qwen2VLImageProcessorPil(patch_size=int(patch), do_resize=False, do_rescale=False, do_normalize=False)
    return digest(np.array(processor(images=[picture(*size(before))])["pixel_values"]).astype(np.uint8))


answers = {"engine": engine, "planes": planes, "lanczos": pillow(1), "bilinear": pillow(2), "bicubic": pillow(3), "open": open_file, "read": read,
           "fit": fit, "patches": patches}

for line in sys.stdin:
    question = line.partition(" = ")[0].strip()
    name, *arguments = question.split()
    with contextlib.suppress(ImportError):
        with contextlib.redirect_stdout(io.StringIO()):
            answer = answers[name](*arguments)
        print(question, "=", answer, flush=True)
