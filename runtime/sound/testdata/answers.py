"""Prints what MNN computes of the sounds of answers_test.go. Reads one question a line from standard input, and prints the question, " = "
and the answer:

    whisper 16000        whisper_fbank without padding of that many samples: SHA-256 of float32 [128, frames]
    conformer 16000      the same for conformer_fbank
    usm 16000            the same for usm_fbank, of engines from 3.6.0 on
    load files/8000.wav  MNN.audio.load at 16 kHz: the number of samples, and SHA-256 of float32

answers.txt was recorded with MNN 3.6.1:

    python answers.py < questions > answers.txt
"""
import hashlib
import os
import sys

import numpy as np


def wave(count):
    """Noise and a tone that Go makes in the same way: multiples of 2^-15, so no rounding differs."""
    i = np.arange(count, dtype=np.uint64)
    noise = (i * 2654435761 + i * i * 97 & 0xFFFFFFFF) >> 20
    tone = (i * (50 + i // 400) & 0x1FFF) * 3
    return ((noise + tone).astype(np.int64) - 14000).astype(np.float32) / np.float32(32768)


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array.astype("<f4")).tobytes()).hexdigest()


def whisper(count):
    import MNN.audio
    import MNN.expr as expr

    samples = expr.const(wave(int(count)).tolist(), [int(count)], expr.NHWC, expr.float)
    return digest(np.array(MNN.audio.whisper_fbank(samples, 16000, 128, 400, 160, 0).read()))


def features(count):
    from conformer import conformer

    return digest(conformer(wave(int(count))))


def universal(count):
    from conformer import usm

    return digest(usm(wave(int(count))))


def load(name):
    import MNN.audio

    samples, _ = MNN.audio.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), 16000)
    samples = np.array(samples.read())
    return f"{samples.size} {digest(samples)}"


answers = {"whisper": whisper, "conformer": features, "usm": universal, "load": load}

for line in sys.stdin:
    question = line.partition(" = ")[0].strip()
    name, *arguments = question.split()
    print(question, "=", answers[name](*arguments), flush=True)
