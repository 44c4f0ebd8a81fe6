"""Computes what the engine does of a clip, for make.py: 16-bit samples at 16 kHz from standard input become float32 [128, frames]. Runs where
MNN is installed."""
import os
import sys

import numpy as np

out = os.dup(1)
os.dup2(2, 1)  # the engine prints to standard output
import MNN.audio
import MNN.expr as expr

wave = np.frombuffer(sys.stdin.buffer.read(), "<i2").astype(np.float32) / np.float32(32768)
features = MNN.audio.whisper_fbank(expr.const(wave.tolist(), [wave.size], expr.NHWC, expr.float), 16000, 128, 400, 160, 0)
os.write(out, np.ascontiguousarray(np.array(features.read(), dtype="<f4")).tobytes())
